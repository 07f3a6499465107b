"""Compacted topics with an archive: it holds every record, and a reader gets each once, whatever went in Redis."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra spark is not installed")
pytest.importorskip("pyspark", reason="the extra spark is not installed")

from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from ketch.cli.commands.archive import app
from tests.archive.test_archive import Archive
from tests.log.test_compaction import FAST, Model, alter, await_compacted, create, producer, read, replayed, write
from tests.support.ketch import KetchServer

KINDS = [("record", "time"), ("batch", "dense")]
SMALL = {"fetch.message.max.bytes": 1_000, "fetch.queue.backoff.ms": 10}  # so that the seam is met between two fetches
Row = tuple[int, bytes, bytes | None]


def rows(server: KetchServer, topic: str, start: int = -2) -> list[Row]:
    return [(message.offset(), message.key(), message.value()) for message in read(server, topic, start)]


def command(archive: Archive, *words: str) -> str:
    """What `ketch archive` prints."""
    given = ["--redis", archive.broker.redis_url, "--data-dir", archive.job.data_dir, "--catalog", archive.job.catalog]
    done = CliRunner().invoke(app, [*words, "--topic", archive.topic, *given])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(("layout", "ids"), KINDS)
def test_the_archive_is_a_full_history(
    start_ketch: Callable[..., KetchServer], topic: str, tmp_path: Path, layout: str, ids: str
) -> None:
    """Only what is archived is compacted, and neither retention nor `expire` takes anything of a compacted topic."""
    server = start_ketch(*FAST)
    limits = {"retention.ms": "1", "retention.bytes": "1"}
    configs = {"storage.layout": layout, "offset.ids": ids, "remote.storage.enable": "true", **limits}
    stream = create(server, topic, **{"delete.retention.ms": "1", **configs})
    to, rng, model = producer(server), random.Random(f"{layout}{ids}"), Model()
    archive, history = Archive(server, topic, tmp_path), list[Row]()
    for _ in range(2):
        write(to, topic, model, rng, 300, 60)
        new = rows(server, topic, history[-1][0] + 1 if history else -2)
        assert len(new) == 300  # nothing is compacted before it is archived
        history += new
        assert f"{topic}: {len(history)} records archived, 0 waiting" in command(archive, "run", "--once")
        await_compacted(server, stream, history[-1][0])
        left = read(server, topic)
        assert replayed(left) == model
        assert len(left) <= 61
    assert f"{topic}: nothing to expire" in command(archive, "expire")
    assert [(row["offset"], row["key"], row["value"]) for row in archive.records()] == history


@pytest.mark.only_storage("record", "record-dense")
def test_a_deleted_key_stays_deleted(start_ketch: Callable[..., KetchServer], topic: str, tmp_path: Path) -> None:
    """Where the archive still gives a key's old value, its tombstone stays beyond `delete.retention.ms`."""
    server = start_ketch(*FAST)
    configs = {"cleanup.policy": "compact,delete", "remote.storage.enable": "true", "delete.retention.ms": "1"}
    stream = create(server, topic, **{**configs, "offset.ids": "dense"})
    to, archive = producer(server), Archive(server, topic, tmp_path)
    history: list[tuple[bytes, bytes | None]] = [(b"gone", b"1")]
    history += [(b"a%d" % n, b"1") for n in range(400)]
    history += [(b"gone", None), (b"b", b"1"), (b"b", b"2")]
    for key, value in history:
        to.produce(topic, value, key)
    assert to.flush(10) == 0
    for n in range(3):
        archive.step()
        await_compacted(server, stream, len(history) - 1 + n)  # so the tombstone's time is over
        to.produce(topic, b"%d" % n, b"last")
        assert to.flush(10) == 0
    server.redis().xtrim(stream, minid="0-151")  # as retention trims whole nodes
    found = read(server, topic, **SMALL)
    assert [message.offset() for message in found[:150]] == list(range(150))
    assert b"gone" not in replayed(found)


@pytest.mark.long(minutes=2)
@pytest.mark.parametrize("layout", ["record", "batch"])
@pytest.mark.parametrize("ids", ["time", "dense"])
@pytest.mark.parametrize("seed", range(2))
def test_reads_across_archive_and_compacted_stream(
    start_ketch: Callable[..., KetchServer], topic: str, tmp_path: Path, layout: str, ids: str, seed: int
) -> None:
    """A table built from the log's start is always the dict, and no record comes twice; the archive is whole."""
    server = start_ketch(*FAST)
    configs = {"cleanup.policy": "compact,delete", "remote.storage.enable": "true", "delete.retention.ms": "1"}
    stream = create(server, topic, **{**configs, "storage.layout": layout, "offset.ids": ids})
    to, rng, model = producer(server), random.Random(f"{layout}{ids}{seed}"), Model()
    archive, history, through = Archive(server, topic, tmp_path), list[Row](), 0
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for step in range(6):
        write(to, topic, model, rng, rng.randrange(50, 400), 80)
        history += rows(server, topic, history[-1][0] + 1 if history else -2)
        if rng.random() < 0.7:
            archive.step()
            through = history[-1][0]
        if through and rng.random() < 0.8:
            await_compacted(server, stream, through)
        if rng.random() < 0.5:
            alter(admin, topic, "local.retention.bytes", str(rng.choice([-2, rng.randrange(1, 40_000)])))
        found = read(server, topic, **SMALL)
        assert replayed(found) == model, step
        assert {(m.offset(), m.key(), m.value()) for m in found} <= set(history)
        middle, newest = rng.choice(history)[0], {key: offset for offset, key, _ in history}
        late = {key: value for key, value in model.items() if newest[key] >= middle}
        assert replayed(read(server, topic, middle, **SMALL)) == late, step
    archive.step()
    assert [(row["offset"], row["key"], row["value"]) for row in archive.records()] == history
    assert "Traceback" not in server.log
