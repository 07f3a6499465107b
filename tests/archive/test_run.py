"""`ketch archive run --once` with little to do: no Spark, no Java; and what the commands print."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("pyiceberg", reason="the extra spark is not installed")
pytest.importorskip("pyspark", reason="the extra spark is not installed")

from ketch.archive import here
from ketch.archive.batch import commit, write
from ketch.archive.here import RECORDS, is_small
from ketch.archive.options import Job
from ketch.archive.plan import ArchivePlanner, Waiting
from ketch.archive.status import status
from ketch.redis.blocking import Server, ask, connected
from tests.archive.test_archive import produce
from tests.spark.conftest import MakeTopic
from tests.support.ketch import KetchServer
from tests.support.quick import commands

Command = Callable[..., list[str]]


@pytest.fixture
def ketch(broker: KetchServer, tmp_path: Path) -> Command:
    """`ketch("run", "--once")`: the lines that `ketch archive` prints, on a machine without Java."""

    def run(name: str, *arguments: str) -> list[str]:
        command = [*commands.program(), "archive", name, *arguments]
        command += ["--redis", broker.redis_url, "--data-dir", str(tmp_path)]
        env = {"PATH": str(tmp_path / "nothing")}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        return done.stdout.splitlines()

    return run


def test_a_small_backlog_needs_no_spark(
    broker: KetchServer, topic: str, make_topic: MakeTopic, ketch: Command, tmp_path: Path
) -> None:
    make_topic(2, **{"offset.ids": "dense"})
    produce(broker, topic, range(6))
    lines = ketch("run", "--once", "--topic", topic)
    assert lines[:-1] == [
        "6 records of 1 topic wait. This process archives them.",
        f"{topic}: 6 records archived, 0 waiting",
    ]
    assert lines[-1].startswith("archived 6 records in ")
    produce(broker, topic, range(6, 7), partition=1)
    lines = ketch("run", "--once", "--topic", topic)
    assert lines[:-1] == [
        "1 record of 1 topic waits. This process archives them.",
        f"{topic}: 7 records archived, 0 waiting",
    ]
    assert ketch("run", "--once", "--topic", topic)[0] == "No records wait to be archived."
    job = Job(Server(broker.redis_url), "korvet", "ketch", str(tmp_path), (topic,))
    assert [(part.start, part.through, part.records) for part in status(job)] == [(0, 6, 6), (0, 1, 1)]


@pytest.mark.only_storage("record", "batch")
def test_upkeep_says_what_it_did(
    broker: KetchServer, topic: str, make_topic: MakeTopic, ketch: Command, tmp_path: Path
) -> None:
    make_topic(1)
    job = Job(Server(broker.redis_url), "korvet", "ketch", str(tmp_path), (topic,))
    for first in range(0, 40, 10):
        produce(broker, topic, range(first, first + 10))
        planner = ArchivePlanner(job)
        here.archive(job, planner, ask(job.server, planner.now), Event(), lambda: None)
    assert ketch("expire", "--topic", topic) == [f"{topic}: nothing to expire"]
    assert ketch("compact", "--topic", topic) == [f"{topic}: 4 small files rewritten as 1 file"]
    assert ketch("compact", "--topic", topic) == [f"{topic}: no small files to rewrite"]


@pytest.mark.only_storage("record", "batch")
def test_expire_spares_the_files_of_a_batch_that_is_under_way(
    broker: KetchServer, topic: str, make_topic: MakeTopic, ketch: Command, tmp_path: Path
) -> None:
    make_topic(1)
    produce(broker, topic, range(10))
    job = Job(Server(broker.redis_url), "korvet", "ketch", str(tmp_path), (topic,))
    planner = ArchivePlanner(job)
    with connected(job.server) as connection:
        splits = planner.splits(connection, planner.now(connection))
    parts = [write(job.server, split) for split in splits]
    ketch("expire", "--topic", topic, "--older-than", "0")
    commit(job, parts)
    assert all(Path(file.file_path.removeprefix("file://")).exists() for _, part in parts for file in part.files)


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_what_waits_is_counted(
    broker: KetchServer, topic: str, make_topic: MakeTopic, tmp_path: Path, layout: str
) -> None:
    make_topic(2, **{"storage.layout": layout})
    produce(broker, topic, range(100))
    produce(broker, topic, range(20), partition=1)
    job = Job(Server(broker.redis_url), "korvet", "test-of-ketch", str(tmp_path), (topic,))
    planner = ArchivePlanner(job)
    with connected(job.server) as connection:
        ends = planner.now(connection)
        produce(broker, topic, range(5))
        waiting = planner.waiting(connection, ends, 1_000)
        assert (waiting.records, waiting.topics) == (120, 1)
        assert 100 < waiting.bytes < 100_000
        assert planner.waiting(connection, ends, 50).records > 50
    assert is_small(waiting)


def test_what_is_much_is_left_to_spark() -> None:
    assert is_small(Waiting(RECORDS, 1 << 20, 3))
    assert not is_small(Waiting(RECORDS + 1, 1 << 20, 3))
    assert not is_small(Waiting(1_000, 1 << 30, 1))
