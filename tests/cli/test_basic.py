"""The command line: serve, doctor, offset, version, and how it refuses."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

import ketch
from ketch.configs.settings import Settings, has_option
from tests.support.cli import in_process
from tests.support.quick import commands

LIMIT = 30
READY = re.compile(
    r"ketch ready: kafka 127\.0\.0\.1:(?P<port>\d+), redis unix:(?P<socket>.*) and 127\.0\.0\.1:(?P<redis>\d+), "
    r"data (?P<data>.*), kernel (cython|python)(, append module)?, \d+\.\d s\n"
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ketch_run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """`serve` in a process of its own, which is forked, the commands that end by themselves in this one."""
    arguments = [str(word) for word in words]
    if arguments[0] != "serve" or "--help" in arguments:
        done = in_process(arguments, b"", environment)
        return subprocess.CompletedProcess(arguments, done.returncode, done.stdout.decode(), done.stderr.decode())
    return subprocess.run(
        [*commands.program(), *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, **environment},
    )


def output(*words: object) -> str:
    done = ketch_run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refusal(code: int, *words: object, **environment: str) -> str:
    """The one sentence on stderr."""
    done = ketch_run(*words, **environment)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert re.fullmatch(r"ketch: .*\.\n", done.stderr)
    return done.stderr[len("ketch: ") : -1]


@contextmanager
def serving(*words: object, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker and its ready line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ketch", "serve", "--port", "0", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
    process.send_signal(number)
    _, log = process.communicate(timeout=LIMIT)
    return process.returncode, log


# -- version, offset, help


def test_version():
    assert re.fullmatch(
        rf"ketch {re.escape(ketch.__version__)} \(kernel (cython|python), Python 3\.\d+\.\d+\S*\)\n", output("version")
    )
    found = json.loads(output("version", "--json"))
    assert found["version"] == ketch.__version__
    assert found["kernel"] in ("cython", "python")

    assert output("--version") == output("version")


def test_version_is_that_of_the_package():
    assert ketch.__version__ == importlib.metadata.version("ketch")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("encode", "1700000000000-5"), "1740800000000005\t2023-11-14T22:13:20.000+00:00"),
        (("decode", "1740800000000005"), "1700000000000-5\t2023-11-14T22:13:20.000+00:00"),
        (("encode", "1700000000000-5", "--bits", "16"), "111411200000000005\t2023-11-14T22:13:20.000+00:00"),
        (("decode", "111411200000000005", "--bits", "16"), "1700000000000-5\t2023-11-14T22:13:20.000+00:00"),
        (("encode", "0-1", "--dense"), "0"),
        (("decode", "1023", "--dense"), "1-0"),
        (("decode", "9223372036854775807"), "9007199254740991-1023"),
    ],
)
def test_offset(words, text):
    assert output("offset", *words) == f"{text}\n"


def test_offset_as_json():
    expected = {"id": "1-5", "offset": 1029, "time": "1970-01-01T00:00:00.001+00:00"}
    assert json.loads(output("offset", "encode", "1-5", "--json")) == expected
    assert json.loads(output("offset", "decode", "1029", "--json")) == expected
    assert json.loads(output("offset", "decode", "1029", "--dense", "--json")) == {
        **expected,
        "id": "1-6",
        "time": None,
    }


@pytest.mark.parametrize("entry", ["5", "x-1", "$", "1-2-3", "ü-1"])
def test_offset_of_no_entry(entry):
    assert "is not an entry id" in refusal(2, "offset", "encode", entry)


def test_entry_that_shares_its_offset():
    done = ketch_run("offset", "encode", "1-1024")
    assert (done.returncode, done.stdout) == (0, "2048\t1970-01-01T00:00:00.001+00:00\n")
    assert done.stderr == "ketch: entry id 2-0 has the same offset: 1024 does not fit into 10 bits.\n"
    assert output("offset", "encode", "1-1023")
    assert output("offset", "encode", "1-1024", "--bits", 11)


def test_entry_without_offset():
    assert "has no offset" in refusal(2, "offset", "encode", "18446744073709551615-0")
    assert "has no offset" in refusal(2, "offset", "encode", "0-0", "--dense")


def test_help_names_every_command_and_setting():
    text = output("--help")
    for name in ("serve", "topics", "produce", "consume", "offset", "doctor", "version"):
        assert re.search(rf"^  {name} ", text, re.MULTILINE)
    text = output("serve", "--help")
    for name in Settings.model_fields:
        assert (f"--{name.replace('_', '-')} " in text) == has_option(name)


IMPORTED = """
import sys
from ketch.cli.main import main
sys.argv = ["ketch", *sys.argv[1:]]
try:
    main()
except SystemExit:
    print(sorted({"redis", "rich", "confluent_kafka", "uvloop", "pydantic_settings"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["version"], []),
        (["topics", "describe", "t"], ["confluent_kafka"]),  # of a broker that is not there
        (["groups", "list"], ["confluent_kafka"]),
    ],
)
def test_commands_do_not_import_what_they_do_not_need(words, needed):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *words], capture_output=True, text=True, timeout=LIMIT,
        env={**os.environ, "KETCH_BOOTSTRAP_SERVER": "127.0.0.1:1"},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == str(needed), done.stderr


# -- doctor


def test_doctor_tries_the_embedded_valkey():
    checks = {check["name"]: check for check in json.loads(output("doctor", "--json"))}
    assert checks.pop("kernel")["verdict"] in ("ok", "warn")
    assert {check["verdict"] for check in checks.values()} == {"ok"}
    assert checks["version"]["seen"].startswith("Valkey ")
    seen = "append-only file, appendfsync no: Ketch syncs it as its own fsync setting says"
    assert (checks["persistence"]["seen"], checks["persistence"]["advice"]) == (seen, "")
    assert not Path("ketch-data").exists()


def test_doctor_says_what_to_do(tmp_path):
    done = ketch_run("doctor", "--redis", f"unix://{tmp_path}/none")
    assert (done.returncode, done.stderr) == (1, "")
    name, verdict, seen, advice = done.stdout.splitlines()[0].split("\t")
    assert (name, verdict) == ("Redis", "fail")
    assert seen.startswith(f"unix://{tmp_path}/none cannot be used")
    assert advice.startswith("start Redis")


def test_doctor_refuses_a_bad_url():
    known = "redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://"
    assert refusal(2, "doctor", "--redis", "http://h") == f"A Redis URL begins with {known}."


# -- serve: what it refuses


def test_serve_refuses_bad_settings(tmp_path):
    (tmp_path / "k.toml").write_text("prot = 1\n")
    assert refusal(2, "serve", "--config", "k.toml") == "k.toml: unknown setting prot (did you mean port?)."
    assert refusal(2, "serve", KETCH_CONFIG="k.toml") == "k.toml: unknown setting prot (did you mean port?)."
    assert refusal(2, "serve", KETCH_PORT="x").startswith("KETCH_PORT = 'x' is not allowed: ")
    assert refusal(2, "serve", "--keyspace", "a{b").startswith("--keyspace = 'a{b' is not allowed: ")
    assert refusal(2, "serve", "--redis", "ftp://h").startswith("A Redis URL begins with ")


def test_serve_refuses_a_redis_that_is_not_there(tmp_path):
    message = refusal(1, "serve", "--port", 0, "--redis", f"unix://{tmp_path}/none")
    assert message.startswith(f"Redis: unix://{tmp_path}/none cannot be used (No such file or directory)")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    message = refusal(1, "serve", "--port", 0, "--redis", f"redis://127.0.0.1:{port}")
    assert message.startswith(f"Redis: redis://127.0.0.1:{port} cannot be used (Connection refused)")


def test_serve_refuses_a_taken_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        taken = f"127.0.0.1:{port}"
        message = refusal(1, "serve", "--port", port)
        assert message == f"Cannot listen on {taken}: Address already in use; --port and --host choose another."
        message = refusal(1, "serve", "--port", 0, "--redis-port", port)
        assert message == f"Valkey cannot listen on {taken}: Address already in use; --redis-port chooses another."
        message = refusal(1, "serve", "--port", 0, "--http-port", port, "--log-level", "warning")
        assert message == f"Cannot listen on {taken} for HTTP: Address already in use; --http-port chooses another."


# -- serve: as it runs


def test_ctrl_c_while_it_imports(tmp_path):
    (tmp_path / "typer.py").write_text("import sys, time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-m", "ketch", "serve"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=LIMIT) == (b"", b"")
    assert process.returncode == -signal.SIGINT, "as a shell expects it of a program that was interrupted"


def test_ready_line_and_stop(tmp_path):
    for number in (signal.SIGTERM, signal.SIGINT):
        with serving() as (process, line):
            ready = READY.fullmatch(line)
            assert ready, line
            assert ready["data"] == "ketch-data"
            with socket.create_connection(("127.0.0.1", int(ready["port"]))):
                pass
            with redis.Redis(port=int(ready["redis"])) as client:
                client.rpush("l", int(number))
            code, log = stop(process, number)
            assert code == 0, log
            assert f"{number.name}: finishing requests in flight" in log
            assert "Traceback" not in log
            assert not Path(ready["socket"]).exists()
    with serving() as (_, line), redis.Redis(port=int(READY.fullmatch(line)["redis"])) as client:
        assert client.lrange("l", 0, -1) == [b"15", b"2"]


def test_a_second_signal_stops_at_once():
    with serving() as (process, line):
        with redis.Redis(port=int(READY.fullmatch(line)["redis"])) as client:
            valkey = client.info("server")["process_id"]
        os.kill(valkey, signal.SIGSTOP)  # a stop that would take long
        process.send_signal(signal.SIGTERM)
        assert process.stderr.readline().endswith("SIGTERM: finishing requests in flight; once more stops at once\n")
        _, log = stop(process)
        assert "did not stop within 1 s and is killed" in log
        assert not Path(f"/proc/{valkey}").exists()


def test_metrics_and_health():
    with serving("--http-port", "0") as (process, line):
        found = re.search(r", http (127\.0\.0\.1:\d+), kernel ", line)
        assert found, line
        with urllib.request.urlopen(f"http://{found[1]}/healthz", timeout=LIMIT) as answer:
            assert (answer.status, answer.read()) == (200, b"ok\n")
        assert refusal(1, "serve", "--port", 0, "--data-dir", "other", "--http-port", found[1].rpartition(":")[2])
        code, log = stop(process)
        assert code == 0
        assert "Traceback" not in log


def test_second_broker_on_the_same_data_is_refused():
    with serving("--data-dir", "d") as (process, _):
        message = refusal(1, "serve", "--port", 0, "--data-dir", "d")
        assert message == f"Data directory {Path.cwd()}/d is in use by another ketch (pid {process.pid})."


def test_killed_and_started_again():
    for n in range(1, 4):
        with serving() as (process, line), redis.Redis(port=int(READY.fullmatch(line)["redis"])) as client:
            assert client.rpush("l", n) == n
            process.kill()
            process.wait(LIMIT)


def test_doctor_finds_the_running_valkey():
    with serving() as (_, line):
        checks = json.loads(output("doctor", "--json"))
        assert checks[0]["seen"] == f"unix://{READY.fullmatch(line)['socket']} answers"


def test_external_redis_with_warnings(tmp_path):
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--save", "", "--unixsocket", tmp_path / "s", "--logfile", tmp_path / "log"]
    )
    try:
        while not (tmp_path / "s").exists():
            assert server.poll() is None
        with serving(KETCH_REDIS=f"unix://{tmp_path}/s") as (process, line):
            assert re.match(rf"ketch ready: kafka 127\.0\.0\.1:\d+, redis unix://{tmp_path}/s, kernel ", line)
            code, log = stop(process)
        assert code == 0
        assert "WARNING ketch: persistence: none: no append-only file, no snapshots; set appendonly yes, " in log
        assert not Path("ketch-data").exists()
        assert server.poll() is None
    finally:
        server.kill()
        server.wait()
