"""Records that were archived and trimmed: read, found by time, deleted; an archive that is not what it should be."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

pytest.importorskip("pyiceberg", reason="the spark extra is not installed")

from redis import Redis

from tests.support.archives import Job
from tests.support.batches import batch, record
from tests.support.http import metrics
from tests.support.kafka import CREATE_TOPICS, DELETE_RECORDS, DELETE_TOPICS, FETCH, Kafka, Record, fetch, part
from tests.support.ketch import KetchServer, eventually
from tests.support.long import rest_long

OUT_OF_RANGE, STORAGE_ERROR = 1, 56
T0 = 1_700_000_000_000
KINDS = [(ids, layout) for ids in ("time", "dense") for layout in ("record", "batch")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    arguments = ("--retention-check-interval-ms", "50", "--archive-stall-ms", "300", "--http-port", "0")
    server = KetchServer(tmp_path_factory.mktemp("tier"), *arguments).start()
    yield server
    assert server.stop() == 0, server.log


@pytest.fixture
def kafka(server: KetchServer) -> Iterator[Kafka]:
    with Kafka(server.port) as client:
        yield client


@pytest.fixture
def redis(server: KetchServer) -> Redis[bytes]:
    return server.redis()


@pytest.fixture
def job(tmp_path: Path, kafka: Kafka, redis: Redis[bytes], topic: str) -> Iterator[Job]:
    job = Job(tmp_path / "lake", kafka, redis, topic)
    yield job
    job.archive.close()


def create(kafka: Kafka, topic: str, kind: tuple[str, str] = ("dense", "record"), **configs: int | str) -> None:
    kafka.create(
        topic, offset_ids=kind[0], storage_layout=kind[1], **{"retention_ms": -1, "local_retention_ms": 0, **configs}
    )


def write(kafka: Kafka, topic: str, first: int, count: int) -> None:
    """Numbered records in batches of 50, one ms apart."""
    for start in range(first, first + count, 50):
        numbers = range(start, min(start + 50, first + count))
        records = [record(b"%d" % n, b"k", [(b"h", b"")], n - start, n - start) for n in numbers]
        kafka.stored(topic, batch(records, base_timestamp=T0 + start))


def numbers(records: list[Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


def trimmed(redis: Redis[bytes], topic: str, most: int = 100) -> None:
    """Waits until no more than so many records are left: XTRIM leaves less than a node of them."""

    def left() -> int:
        (entries,) = redis.xrange(f"korvet:stream:{topic}:0", count=1) or [(b"", {})]
        each = 50 if b"batch" in entries[1] else 1
        return each * int(redis.xlen(f"korvet:stream:{topic}:0"))

    eventually(lambda: left() <= most, what="the archived entries to go")


def earliest(kafka: Kafka, topic: str) -> int:
    return int(kafka.list_offsets(topic, -2).offset)


@pytest.mark.parametrize("kind", rest_long([(kind,) for kind in KINDS], [(("time", "record"),), (("dense", "batch"),)]))
def test_everything_is_read_once_across_the_seam(
    server: KetchServer, kafka: Kafka, redis: Redis[bytes], topic: str, job: Job, kind: tuple[str, str]
) -> None:
    create(kafka, topic, kind)
    write(kafka, topic, 0, 1000)
    before = kafka.read_all(topic)
    through = job.run(files=3)
    trimmed(redis, topic)
    write(kafka, topic, 1000, 130)
    assert kafka.list_offsets(topic, -2).offset == before[0].offset
    assert kafka.list_offsets(topic, -4).offset > before[799].offset
    assert kafka.list_offsets(topic, -5).offset == through - 1
    counted = metrics(server)
    after = kafka.read_all(topic)
    assert after[:1000] == before
    assert numbers(after) == list(range(1130))
    requests, size = (f"ketch_remote_fetch_{what}_total" for what in ("requests", "bytes"))
    assert metrics(server)[requests, topic] > counted.get((requests, topic), 0)
    assert metrics(server)[size, topic] > 9000 + counted.get((size, topic), 0)
    for place in (1, 500, 899, 950, 999, 1000, 1129):
        assert kafka.read_all(topic, after[place].offset) == after[place:]


@pytest.mark.parametrize("kind", rest_long([(kind,) for kind in KINDS], [(("time", "record"),), (("dense", "batch"),)]))
def test_by_time(kafka: Kafka, redis: Redis[bytes], topic: str, job: Job, kind: tuple[str, str]) -> None:
    create(kafka, topic, kind)
    write(kafka, topic, 0, 500)
    kafka.stored(topic, batch([record(b"500")], base_timestamp=T0 + 10_000))
    write(kafka, topic, 501, 499)
    job.run(files=4)
    records = kafka.read_all(topic)
    trimmed(redis, topic)
    for wanted, place in ((0, 0), (T0, 0), (T0 + 250, 250), (T0 + 499, 499), (T0 + 999, 500), (T0 + 10_000, 500)):
        found = kafka.list_offsets(topic, wanted)
        assert (found.offset, found.timestamp) == (records[place].offset, records[place].timestamp)
    assert kafka.list_offsets(topic, T0 + 10_001).offset == -1
    assert kafka.list_offsets(topic, -3).offset == records[500].offset
    late = kafka.stored(topic, batch([record(b"late")], base_timestamp=T0 + 20_000))
    assert kafka.list_offsets(topic, T0 + 10_001).offset == late
    assert kafka.list_offsets(topic, -3).offset == late


def test_what_is_not_archived_stays(kafka: Kafka, redis: Redis[bytes], topic: str, job: Job) -> None:
    create(kafka, topic, retention_ms=1, remote_storage_enable="true")
    write(kafka, topic, 0, 1000)
    job.run(end=500)
    trimmed(redis, topic, 600)
    job.announce(updated="1")
    assert redis.xrange(f"korvet:stream:{topic}:0", count=1)[0][0] <= b"0-501"
    assert numbers(kafka.read_all(topic)) == list(range(1000))


def test_an_archive_that_has_not_begun(kafka: Kafka, redis: Redis[bytes], topic: str) -> None:
    other = f"{topic}-other"
    create(kafka, topic, retention_ms=1, remote_storage_enable="true")
    create(kafka, other, retention_ms=1)
    for name in (topic, other):
        write(kafka, name, 0, 300)
    trimmed(redis, other, 0)
    assert redis.xlen(f"korvet:stream:{topic}:0") == 300


def test_by_size(kafka: Kafka, redis: Redis[bytes], topic: str, job: Job) -> None:
    create(kafka, topic, local_retention_ms=-1, local_retention_bytes=5000)
    write(kafka, topic, 0, 2000)
    job.run()
    trimmed(redis, topic, 1000)
    assert redis.xlen(f"korvet:stream:{topic}:0") > 200
    assert numbers(kafka.read_all(topic)) == list(range(2000))


def test_a_group_reads_across_the_seam(
    server: KetchServer, kafka: Kafka, redis: Redis[bytes], topic: str, job: Job
) -> None:
    create(kafka, topic)
    write(kafka, topic, 0, 700)
    job.run()
    trimmed(redis, topic)
    write(kafka, topic, 700, 50)
    config = {"bootstrap.servers": server.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    read: list[int] = []
    for until in (333, 740, 750):  # the group goes on where it was, in the archive and behind it
        consumer = Consumer({**config, "enable.auto.commit": False, "enable.auto.offset.store": True})
        consumer.subscribe([topic])
        while len(read) < until:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            read.append(int(message.value()))
        consumer.commit(asynchronous=False)
        consumer.close()
    assert read == list(range(750))


def test_it_outlives_the_broker(start_ketch: Callable[..., KetchServer], tmp_path: Path, topic: str) -> None:
    server = start_ketch("--retention-check-interval-ms", "50")
    with Kafka(server.port) as kafka:
        create(kafka, topic, ("time", "batch"))
        write(kafka, topic, 0, 500)
        before = kafka.read_all(topic)
        job = Job(tmp_path / "lake", kafka, server.redis(), topic)
        job.run()
        trimmed(server.redis(), topic)
    server.kill()
    server.start()
    with Kafka(server.port) as kafka:
        assert kafka.read_all(topic) == before
    job.archive.close()


def test_an_archive_that_is_dropped(kafka: Kafka, redis: Redis[bytes], topic: str, job: Job) -> None:
    create(kafka, topic)
    write(kafka, topic, 0, 500)
    job.run()
    trimmed(redis, topic)
    assert earliest(kafka, topic) == 0
    redis.delete(job.key)
    local = eventually(lambda: earliest(kafka, topic), what="the log to start where Redis does")
    assert local == kafka.list_offsets(topic, -4).offset
    assert kafka.list_offsets(topic, -5).offset == -1
    assert kafka.fetch(topic, 0).error_code == OUT_OF_RANGE
    assert numbers(kafka.read_all(topic)) == list(range(local, 500))


def test_an_archive_that_was_expired(kafka: Kafka, redis: Redis[bytes], topic: str, job: Job) -> None:
    create(kafka, topic)
    write(kafka, topic, 0, 500)
    job.run(files=5)
    trimmed(redis, topic)
    job.archive.table.delete("offset < 200")
    job.start[0] = 200
    job.announce()
    eventually(lambda: earliest(kafka, topic) == 200)
    assert kafka.fetch(topic, 199).error_code == OUT_OF_RANGE
    assert numbers(kafka.read_all(topic)) == list(range(200, 500))


def test_files_that_a_compaction_replaced(kafka: Kafka, redis: Redis[bytes], topic: str, job: Job) -> None:
    create(kafka, topic)
    write(kafka, topic, 0, 500)
    job.run(files=5)
    trimmed(redis, topic)
    assert numbers(kafka.read_all(topic)) == list(range(500))
    old = files(job)
    job.archive.table.overwrite(job.archive.table.scan().to_arrow())
    job.announce()
    for path in old:
        path.unlink()
    assert numbers(kafka.read_all(topic)) == list(range(500))


def test_an_archive_that_stands_still(
    server: KetchServer, kafka: Kafka, redis: Redis[bytes], topic: str, job: Job
) -> None:
    create(kafka, topic)
    write(kafka, topic, 0, 500)
    job.run()
    trimmed(redis, topic)
    assert f"{topic}: nothing was archived" not in server.log
    write(kafka, topic, 500, 500)
    eventually(lambda: f"{topic}: nothing was archived" in server.log, what="a warning")
    job.run()
    trimmed(redis, topic)
    assert server.log.count(f"{topic}: nothing was archived") == 1


def test_files_that_cannot_be_read(
    server: KetchServer, kafka: Kafka, redis: Redis[bytes], topic: str, job: Job
) -> None:
    create(kafka, topic)
    write(kafka, topic, 0, 500)
    job.run()
    trimmed(redis, topic)
    write(kafka, topic, 500, 1)
    (path,) = files(job)
    away = path.with_suffix(".away")
    path.rename(away)
    assert kafka.fetch(topic, 0).error_code == STORAGE_ERROR
    assert metrics(server)["ketch_remote_fetch_errors_total", topic] > 0
    assert kafka.fetch(topic, 500).error_code == 0
    away.rename(path)
    assert numbers(kafka.read_all(topic)) == list(range(501))


def files(job: Job) -> list[Path]:
    return [Path(task.file.file_path.removeprefix("file://")) for task in job.archive.table.scan().plan_files()]


def delete_records(kafka: Kafka, topic: str, offset: int) -> int:
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
    answer = kafka.ask(DELETE_RECORDS, 2, topics=asked, timeout=1000).topics[0].partitions[0]
    assert answer.error_code == 0
    return int(answer.low_watermark)


def test_deleted_records_are_gone_from_both_tiers(kafka: Kafka, redis: Redis[bytes], topic: str, job: Job) -> None:
    create(kafka, topic)
    write(kafka, topic, 0, 500)
    job.run()
    trimmed(redis, topic)
    write(kafka, topic, 500, 100)
    assert delete_records(kafka, topic, 123) == 123
    assert earliest(kafka, topic) == 123
    assert kafka.fetch(topic, 122).error_code == OUT_OF_RANGE
    job.run()  # an announcement does not bring them back
    assert numbers(kafka.read_all(topic)) == list(range(123, 600))
    assert delete_records(kafka, topic, 100) == 123
    assert delete_records(kafka, topic, 580) == 580
    assert numbers(kafka.read_all(topic)) == list(range(580, 600))
    assert delete_records(kafka, topic, -1) == 600
    assert earliest(kafka, topic) == 600


def test_records_deleted_before_any_was_trimmed(kafka: Kafka, topic: str, job: Job) -> None:
    create(kafka, topic, local_retention_ms=-2)
    write(kafka, topic, 0, 200)
    job.run()
    assert delete_records(kafka, topic, 150) == 150
    assert kafka.fetch(topic, 149).error_code == OUT_OF_RANGE
    assert numbers(kafka.read_all(topic)) == list(range(150, 200))


def test_a_topic_made_anew_has_no_archive(kafka: Kafka, redis: Redis[bytes], topic: str, job: Job) -> None:
    create(kafka, topic, local_retention_ms=-2)
    write(kafka, topic, 0, 100)
    old = str(kafka.topic_id(topic))
    job.run()
    eventually(lambda: kafka.list_offsets(topic, -5).offset == 99)
    assert kafka.ask(DELETE_TOPICS, 1, topic_names=[topic], timeout=5000).responses[0].error_code == 0
    assert not redis.exists(job.key)
    create(kafka, topic, local_retention_ms=-2)
    job.announce(**{"topic-id": old})  # by a job that was late
    eventually(lambda: kafka.list_offsets(topic, -5).offset == -1)
    assert earliest(kafka, topic) == 0
    assert kafka.read_all(topic) == []


def test_local_retention_is_part_of_retention(kafka: Kafka, topic: str) -> None:
    for configs, name in (
        ({"local.retention.ms": "2", "retention.ms": "1"}, "local.retention.ms"),
        ({"local.retention.bytes": "2", "retention.bytes": "1"}, "local.retention.bytes"),
        ({"local.retention.ms": "-1", "retention.ms": "1"}, "local.retention.ms"),
        ({"local.retention.ms": "-3"}, "local.retention.ms"),
        ({"remote.storage.enable": "yes"}, "remote.storage.enable"),
    ):
        settings = [{"name": key, "value": value} for key, value in configs.items()]
        asked = {"name": topic, "num_partitions": 1, "replication_factor": -1, "configs": settings}
        answer = kafka.ask(CREATE_TOPICS, 7, topics=[asked], timeout=1000).topics[0]
        assert answer.error_code == 40
        assert name in answer.error_message


def test_a_broker_without_the_extra(start_ketch: Callable[..., KetchServer], tmp_path: Path, topic: str) -> None:
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "pyarrow.py").write_text("raise ImportError('no pyarrow here')\n")
    path = os.pathsep.join((str(tmp_path / "shadow"), os.environ.get("PYTHONPATH", "")))
    server = start_ketch("--retention-check-interval-ms", "50", env={"PYTHONPATH": path})
    with Kafka(server.port) as kafka:
        create(kafka, topic)
        write(kafka, topic, 0, 300)
        job = Job(tmp_path / "lake", kafka, server.redis(), topic)
        job.run()
        trimmed(server.redis(), topic)
        write(kafka, topic, 300, 1)
        assert earliest(kafka, topic) == 0
        assert [kafka.fetch(topic, 0).error_code for _ in range(3)] == [STORAGE_ERROR] * 3
        assert kafka.list_offsets(topic, T0).error_code == STORAGE_ERROR
        assert numbers(kafka.read_all(topic, kafka.list_offsets(topic, -4).offset))[-1] == 300
    assert len(re.findall(r"archived records cannot be read: no pyarrow here.*ketch\[spark\]", server.log)) == 1
    job.archive.close()


def test_a_read_that_hangs_does_not_keep_the_broker_from_stopping(start_ketch: Callable[..., KetchServer]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as storage:  # takes a request and never answers it
        given = {"endpoint": "http://{}:{}".format(*storage.getsockname()), "request_timeout": "600", "region": "x"}
        given |= {"access_key_id": "x", "secret_access_key": "x"}
        env = {f"PYICEBERG_CATALOG__KETCH__S3__{name.upper()}": value for name, value in given.items()}
        server = start_ketch("--drain-timeout-ms", "100", env=env)
        with Kafka(server.port) as kafka, server.redis() as redis:
            create(kafka, "t")
            write(kafka, "t", 0, 3)
            redis.hset("korvet:archive:t", mapping={"metadata": "s3://b/m.json", "start:0": 0, "through:0": 3})
            redis.xtrim("korvet:stream:t:0", maxlen=0, approximate=False)
            eventually(lambda: kafka.list_offsets("t", -2).offset == 0, what="the broker to know of the archive")
            kafka.send(FETCH, 12, **fetch([part("t", 0, 0)]))
            storage.settimeout(20)
            with storage.accept()[0]:
                assert server.stop() == 0
