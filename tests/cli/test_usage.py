"""What `ketch` answers to a mistake on its command line: one sentence that names option, value and what is allowed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from confluent_kafka import KafkaError

from ketch.cli.main import main
from ketch.views.kafka.answers import explain
from tests.support.quick import commands


def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """The sentence on stderr of a command that was typed wrongly."""
    monkeypatch.setattr(sys, "argv", ["ketch", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    assert (ended.value.code, output.out) == (2, "")
    line = output.err.removesuffix("\n")
    assert line.startswith("ketch: ")
    assert line.endswith(".")
    assert "\n" not in line
    return line.removeprefix("ketch: ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nothing", "`ketch` has no command nothing; `ketch -h` lists them."),
        ("topcs list", "`ketch` has no command topcs (did you mean topics?)."),
        ("topics lst", "`ketch topics` has no command lst (did you mean list?)."),
        ("version --loud", "`ketch version` has no option --loud; `ketch version -h` lists them."),
        ("version a b", "`ketch version` takes no further argument: a b."),
        ("offset decode", "`ketch offset decode` needs OFFSET; `ketch offset decode -h` explains it."),
        ("offset decode x", "OFFSET = 'x' is not allowed: it should be a whole number."),
        (
            "offset decode 9223372036854775808",
            "OFFSET = '9223372036854775808' is not allowed: it should be at most 9223372036854775807.",
        ),
        ("offset encode 1-1 --bits 9", "--bits = '9' is not allowed: it should be at least 10."),
        ("offset encode 1-1 --bits", "--bits needs a value."),
        ("produce t --acks 7", "--acks = '7' is not allowed: it should be '0', '1' or 'all'."),
        ("serve --prot 1", "`ketch serve` has no option --prot (did you mean --port?)."),
        ("serve --port http", "--port = 'http' is not allowed: it should be a whole number from 0 to 65535."),
        ("serve --fsync maybe", "--fsync = 'maybe' is not allowed: it should be 'always', 'everysec' or 'no'."),
        (
            "serve --redis redis://h --fsync no --data-dir d",
            "--fsync and --data-dir are for the embedded Valkey, and the setting redis names another server: "
            "give one or the other.",
        ),
    ],
)
def test_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str, sentence: str
) -> None:
    assert said(capsys, monkeypatch, *words.split()) == sentence


def test_a_redis_of_the_environment_contradicts_an_option_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KETCH_REDIS", "redis://h")
    assert said(capsys, monkeypatch, "serve", "--redis-port", "1").startswith("--redis-port is for the embedded Valkey")


def test_no_to_a_question() -> None:
    command = [*commands.program(), "topics", "delete", "orders"]
    master, slave = pty.openpty()
    try:
        os.write(master, b"n\n")
        done = subprocess.run(command, stdin=slave, capture_output=True, text=True, timeout=60)
    finally:
        os.close(master)
        os.close(slave)
    assert (done.returncode, done.stdout.strip()) == (1, "")
    assert done.stderr.splitlines()[-1].endswith("ketch: nothing was changed.")


def test_a_broker_without_its_storage() -> None:
    assert explain(KafkaError(KafkaError.KAFKA_STORAGE_ERROR)) == "the broker cannot reach its storage"
    told = KafkaError(KafkaError.KAFKA_STORAGE_ERROR, "Redis refuses: OOM")
    assert explain(told) == "Redis refuses: OOM"
