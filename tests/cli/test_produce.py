"""`ketch produce` while the broker or its Redis is gone, and the forms of its input."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.support.cli import Ketch, values
from tests.support.ketch import KetchServer, eventually


@pytest.fixture
def ketch(broker: KetchServer) -> Ketch:
    return Ketch(broker)


# -- without a broker


@pytest.mark.parametrize("gone", ["broker", "valkey"])
def test_one_ctrl_c_ends_a_producer_that_waits(start_ketch: Callable[..., KetchServer], gone: str) -> None:
    broker = start_ketch()
    ketch = Ketch(broker)
    ketch("topics", "create", "t")
    assert broker.process is not None
    pid = broker.process.pid if gone == "broker" else int(broker.redis().info("server")["process_id"])
    with ketch.start("produce", "t") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"stored\n")
        process.stdin.flush()
        eventually(lambda: values(ketch("consume", "t")) == [b"stored"])
        os.kill(pid, signal.SIGSTOP)
        try:
            process.stdin.write(b"one\ntwo\n")
            process.stdin.flush()  # and left open, so it also waits for input
            waiting = process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 1
        finally:
            os.kill(pid, signal.SIGCONT)
        why = b"it has acknowledged nothing for 3 s. Ctrl-C gives up.\n"
        assert waiting == b"ketch: waiting for %s to acknowledge 2 records: " % broker.bootstrap.encode() + why
        summary, end = process.stderr.read().splitlines()
        assert summary.startswith(b"1 records to t in ")
        assert end == b"ketch: Interrupted: 1 of 3 records were stored, 2 were not acknowledged."


def test_a_broker_that_comes_back_gets_what_waited(start_ketch: Callable[..., KetchServer]) -> None:
    broker = start_ketch()
    ketch = Ketch(broker)
    ketch("topics", "create", "t")
    with ketch.start("produce", "t") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        eventually(lambda: values(ketch("consume", "t")) == [b"one"])
        broker.stop()
        process.stdin.write(b"two\n")
        process.stdin.close()
        assert b"to acknowledge a record: it cannot be reached." in process.stderr.readline()
        broker.start()
        assert process.wait(60) == 0
        assert process.stderr.read().startswith(b"2 records to t in ")
    assert values(ketch("consume", "t")) == [b"one", b"two"]
