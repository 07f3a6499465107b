"""`ketch certificates`: what it makes can be used, can be read by nobody else, and is never written over."""

from __future__ import annotations

import ssl
import stat
import subprocess
import sys
from pathlib import Path

from ketch.configs.settings import Settings
from ketch.security.tls import server_context


def run(directory: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "ketch", "certificates", str(directory), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_a_trial_needs(tmp_path: Path) -> None:
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
        assert shaken(server, client, host) == ((("commonName", "alice"),),)


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> object:
    """The subject that a server has seen, after a handshake in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=host),
        server.wrap_bio(there, back, server_side=True),
    ]
    pending = list(ends)
    while pending:
        for end in list(pending):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            pending.remove(end)
    certificate = ends[1].getpeercert()
    assert certificate is not None
    return certificate["subject"]


def test_a_second_run_adds_and_replaces_nothing(tmp_path: Path) -> None:
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


def test_what_cannot_be_done(tmp_path: Path) -> None:
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
