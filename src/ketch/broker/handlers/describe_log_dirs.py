"""DescribeLogDirs (35), versions 1 to 4: what the partitions that this broker leads take, in Redis and in the archive.

There are two directories: the Redis, by its URL, with the bytes of MEMORY USAGE, and, where a topic is archived, the
archive, `iceberg:<catalog>`, with the bytes of its data files. The size of the Redis directory is `maxmemory`, or the
machine's memory (KIP-827). Kafka leaves out what was asked for and is not here, and so does this.

Deviation: an archive that cannot be read gets KAFKA_STORAGE_ERROR (56) for its directory, without partitions.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.errors import KetchError
from ketch.store.stream.ranges import together
from ketch.store.topics.topic import Topic
from ketch.wire.responses import Body

_Sizes = dict[int, int]  # bytes by partition


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not describe the cluster."""
    return {"error_code": code, "results": ()}


async def handle(request: Request) -> Answer:
    try:
        asked = await _asked(request)
        results = [await _redis(request, asked), *await _archive(request, asked)]
    except KetchError as error:
        return {"error_code": request.refuse("", error), "results": ()}
    return {"error_code": ErrorCode.none, "results": results}


async def _asked(request: Request) -> list[tuple[Topic, list[int]]]:
    """Topics and those of their partitions that were asked for and are led here."""
    topics = {topic.name: topic for topic in await request.broker.log.topics.all()}
    wanted = request.body.topics
    if wanted is None:
        chosen = [(topic, set(range(topic.partitions))) for topic in topics.values()]
    else:
        chosen = [(topics[each.topic], set(each.partitions)) for each in wanted if each.topic in topics]
    leads = request.broker.cluster.leads
    return [
        (topic, [index for index in range(topic.partitions) if index in indexes and leads(topic.id, index)])
        for topic, indexes in chosen
    ]


async def _redis(request: Request, asked: list[tuple[Topic, list[int]]]) -> Body:
    log = request.broker.log
    sizes = await log.memory([(topic, index) for topic, indexes in asked for index in indexes])
    room = together(await log.rooms())
    total = room.limit or room.machine
    topics = [(topic.name, {index: sizes[topic.name, index] for index in indexes}) for topic, indexes in asked]
    return _directory(request.broker.redis.describe(), topics) | {
        "total_bytes": total or -1,
        "usable_bytes": max(0, total - room.used) if total else -1,
    }


async def _archive(request: Request, asked: list[tuple[Topic, list[int]]]) -> list[Body]:
    name, found = f"iceberg:{request.broker.settings.archive_catalog}", list[tuple[str, _Sizes]]()
    for topic, indexes in asked:
        try:
            sizes = await request.broker.log.archived_bytes(topic)
        except KetchError as error:
            return [_directory(name, [], request.refuse(topic.name, error))]
        if sizes is not None:
            found.append((topic.name, {index: sizes.get(index, 0) for index in indexes}))
    return [_directory(name, found)] if found else []


def _directory(name: str, topics: list[tuple[str, _Sizes]], code: ErrorCode = ErrorCode.none) -> dict[str, object]:
    return {
        "error_code": code,
        "log_dir": name,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "partition_size": size, "offset_lag": 0, "is_future_key": False}
                    for index, size in sizes.items()
                ],
            }
            for topic, sizes in topics
            if sizes
        ],
        "total_bytes": -1,
        "usable_bytes": -1,
    }
