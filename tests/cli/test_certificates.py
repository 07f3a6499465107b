"""`ketch certificates`: what it makes can be used, can be read by nobody else, and is never written over."""

from __future__ import annotations

import ssl
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ketch.cli.main import main
from ketch.configs.settings import Settings
from ketch.security.tls import server_context
from tests.support.certificates import handshake

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`ketch certificates DIR ...` in this process: the exit code, and all that it says."""

    def run(directory: Path, *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["ketch", "certificates", str(directory), *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out + said.err

    return run


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_a_trial_needs(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "made" / "here"
    code, said = run(directory, "--host", "kafka.example", "--host", "127.0.0.1", "--client", "alice")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()] == [
        f"{directory}/{name}.pem" for name in ("ca", "broker", "alice")
    ]
    modes = {path.name: mode(path) for path in directory.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca-key.pem": 0o600, "broker.pem": 0o600, "alice.pem": 0o600}
    settings = Settings(
        ssl_keystore_location=directory / "broker.pem",
        ssl_truststore_location=directory / "ca.pem",
        ssl_client_auth="required",
    )
    server = server_context(settings)
    client = ssl.create_default_context(cafile=directory / "ca.pem")
    client.load_cert_chain(directory / "alice.pem")
    for host in ("kafka.example", "127.0.0.1"):
        certificate = handshake(server, client, host).getpeercert()
        assert certificate is not None
        assert certificate["subject"] == ((("commonName", "alice"),),)


def test_a_second_run_adds_and_replaces_nothing(run: Run, tmp_path: Path) -> None:
    assert run(tmp_path, "--host", "a")[0] == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code, said = run(tmp_path, "--host", "a")
    assert (code, said) == (
        2,
        f"ketch: {tmp_path}/broker.pem is there already: remove it, or name another directory.\n",
    )
    assert run(tmp_path, "--client", "bob")[0] == 0
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.pop("bob.pem")
    assert after == before
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    context.load_cert_chain(tmp_path / "bob.pem")


def test_what_cannot_be_done(run: Run, tmp_path: Path) -> None:
    assert run(tmp_path) == (2, "ketch: --host should say by which name or address clients reach the broker.\n")
    code, said = run(tmp_path, "--host", "a b")
    assert (code, said) == (2, "ketch: --host 'a b' should be a host name or an IP address.\n")
    for name in ("../x", "broker", "a/b", ""):
        assert run(tmp_path, "--host", "a", "--client", name)[0] == 2
    file = tmp_path / "file"
    file.write_text("")
    code, said = run(file, "--host", "a")
    assert (code, said.count("\n")) == (1, 1)
    (tmp_path / "ca.pem").write_text("x")
    code, said = run(tmp_path, "--host", "a")
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith(f"ketch: The authority in {tmp_path} cannot be read: ")
    (tmp_path / "ca-key.pem").write_text("x")
    assert run(tmp_path, "--host", "a") == (
        1,
        f"ketch: The authority in {tmp_path} is none of ours: name another directory.\n",
    )
