"""Positions of messages that have moved to the archive: the same bytes at the same places, compressed ones too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the spark extra is not installed")

from ketch.archive.batch import commit, write
from ketch.archive.options import Job
from ketch.archive.plan import ArchivePlanner
from ketch.legacy07.messages import GZIP, SNAPPY
from ketch.redis.blocking import Server, ask
from tests.legacy07.byte_logs import Broker, Walker, brokers, compressed, keyed, plain, refused
from tests.support.redis_servers import RedisServer, binaries


def archive(redis: RedisServer, directory: Path) -> None:
    """What the archive job does with what waits."""
    job = Job(server=Server(redis.url), keyspace="korvet", catalog="ketch", data_dir=str(directory))
    planner = ArchivePlanner(job)
    splits = ask(job.server, lambda connection: planner.splits(connection, planner.ends(connection, None)))
    commit(job, [write(job.server, split) for split in splits])


@pytest.mark.parametrize(("layout", "ids"), [("record", "time"), ("batch", "dense")])
@pytest.mark.usefixtures("small_steps")
def test_archived_messages_stay_where_they_are(tmp_path: Path, layout: str, ids: str) -> None:
    async def run(redis: RedisServer) -> None:
        async with brokers(redis, 3) as (writer, reader, stranger):
            configs = {"storage.layout": layout, "offset.ids": ids, "remote.storage.enable": "true"}
            topic = await writer.log.topics.create("t", 1, configs)
            log, walker = await writer.get("t"), Walker(1)
            await fill(writer, 0)
            before = await walker.walk(await reader.get("t"))
            await asyncio.to_thread(archive, redis, tmp_path)
            await fill(writer, 100)
            await asyncio.to_thread(archive, redis, tmp_path)
            # Within a compressed message, so that its records lie on both sides.
            redis.client().xtrim("korvet:stream:t:0", maxlen=7 if layout == "record" else 2, approximate=False)
            await fill(writer, 200)
            for broker in (writer, reader, stranger):
                broker.log.watcher.changed(b"korvet:stream:t:0")
                await asyncio.sleep(0.6)  # what it knows of the archive is older no more
                found = await walker.walk(await broker.get("t"))
                assert found[: len(before)] == before
                assert len(found) == 3 * len(before)
                assert await refused(await broker.get("t"), found[-1][0] + len(found[-1][1]) + 1)
            # Today's consumers do not see what is kept for 0.7's.
            partition = stranger.log.partition(topic, 0)
            bounds = await partition.bounds.get()
            read = await partition.reader.read(bounds.log_start, 1 << 20, bounds, zstd=True)
            assert b"ketch.legacy07" not in bytes(read.records)  # type: ignore[arg-type]
            assert log is await writer.get("t")

    redis = RedisServer(next(iter(binaries().values())), tmp_path / "redis")
    try:
        asyncio.run(run(redis))
    finally:
        redis.stop()


async def fill(broker: Broker, first: int) -> None:
    """Six messages of 0.7's, two of them compressed, and three records of today's."""
    log = await broker.get("t")
    some = [b"%d" % n for n in range(first, first + 30)]
    sets = [[plain(b"one"), compressed(SNAPPY, some)], [compressed(GZIP, [b"alone"])], [plain(b""), plain(b"x" * 400)]]
    for messages in sets:
        await (await log.append([*messages]))
    topic = await broker.log.topic("t")
    await broker.log.partition(topic, 0).append(topic.layout.pack(keyed([b"a", None, b"c"]), 0))
    await (await log.append([compressed(GZIP, some)]))
