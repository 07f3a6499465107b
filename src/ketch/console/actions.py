"""What the console changes: requests of Kafka's protocol to this broker, made from the fields of forms.

Each raises `Refusal`, whose text is a sentence, where the broker does not do it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.clock import now_ms
from ketch.console.site import Site
from ketch.errors import KetchError
from ketch.records import decode_entries
from ketch.redis.resp import pack
from ketch.views.groups import Move

log = logging.getLogger(__name__)

_TIMEOUT = timedelta(seconds=15)
_TOPIC = 2  # ConfigResource.Type
_SET, _DELETE = 0, 1  # AlterConfigOp.OpType
_SENTENCES = {
    ErrorCode.not_coordinator: "another broker looks after this group: use its console, or `ketch groups reset`",
    ErrorCode.unknown_member_id: "the group has members: stop its consumers first",
    ErrorCode.non_empty_group: "the group has members: stop its consumers first",
    ErrorCode.rebalance_in_progress: "the group has members: stop its consumers first",
    ErrorCode.group_id_not_found: "there is no such group",
    ErrorCode.unknown_topic_or_partition: "there is no such topic or partition",
    ErrorCode.topic_already_exists: "there is a topic of this name already",
}


class Refusal(KetchError):
    """The broker does not do it."""


class Actions:
    """What one person asks for.

    Args:
        host: the person's address, for the log.
        user: who has logged in, and has to be allowed to do it.
    """

    def __init__(self, site: Site, host: str, user: str | None) -> None:
        self._site, self._host, self._user = site, host, user

    async def _ask(self, body: Any, what: str) -> dict[str, Any]:
        who = self._host if self._user is None else f"{self._user} at {self._host}"
        log.info("console: %s asks to %s", who, what)
        return await self._site.sources.ask(body, self._host, log.info, self._user)

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        module = _schema("create_topics", 7)
        given = tuple(module.CreatableTopicConfig(name=each, value=value) for each, value in configs.items())
        topic = module.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=-1, assignments=(), configs=given
        )
        body = module.CreateTopicsRequest(topics=(topic,), timeout=_TIMEOUT, validate_only=False)
        answer = await self._ask(body, f"create topic {name!r}")
        _check(f"Topic {name} was not created", answer["topics"])

    async def delete_topic(self, name: str) -> None:
        module = _schema("delete_topics", 6)
        body = module.DeleteTopicsRequest(topics=(module.DeleteTopicState(name=name, topic_id=None),), timeout=_TIMEOUT)
        answer = await self._ask(body, f"delete topic {name!r}")
        _check(f"Topic {name} was not deleted", answer["responses"])

    async def alter_topic(self, name: str, config: str, value: str | None) -> None:
        """Sets a config, or takes it back to its default where `value` is None."""
        module = _schema("incremental_alter_configs", 1)
        change = module.AlterableConfig(name=config, config_operation=_DELETE if value is None else _SET, value=value)
        resource = module.AlterConfigsResource(resource_type=_TOPIC, resource_name=name, configs=(change,))
        body = module.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        answer = await self._ask(body, f"alter {config!r} of topic {name!r}")
        _check(f"{config} was not changed", answer["responses"])

    async def add_partitions(self, name: str, count: int) -> None:
        """Has a topic have `count` partitions, which are more than it has."""
        module = _schema("create_partitions", 3)
        topic = module.CreatePartitionsTopic(name=name, count=count, assignments=None)
        body = module.CreatePartitionsRequest(topics=(topic,), timeout=_TIMEOUT, validate_only=False)
        answer = await self._ask(body, f"have {count} partitions of topic {name!r}")
        _check(f"Topic {name} got no partitions", answer["results"])

    async def produce(
        self,
        name: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[bytes, bytes]],
    ) -> int:
        """Produces one record; its offset."""
        module = _schema("produce", 12)
        part = module.PartitionProduceData(index=partition, records=batch(key, value, headers))
        topic = module.TopicProduceData(name=name, partition_data=(part,))
        body = module.ProduceRequest(transactional_id=None, acks=-1, timeout=_TIMEOUT, topic_data=(topic,))
        answer = await self._ask(body, f"produce to topic {name!r}, partition {partition}")
        parts = list(next(iter(answer["responses"]))["partition_responses"])
        _check("The record was not stored", parts)
        return int(parts[0]["base_offset"])

    async def reset(self, group: str, moves: Iterable[Move]) -> None:
        """Commits other offsets for a group without members."""
        module = _schema("offset_commit", 9)
        by_topic: dict[str, list[Any]] = {}
        for move in moves:
            part = module.OffsetCommitRequestPartition(
                partition_index=move.partition, committed_offset=move.to, committed_metadata=""
            )
            by_topic.setdefault(move.topic, []).append(part)
        topics = tuple(
            module.OffsetCommitRequestTopic(name=name, partitions=tuple(parts)) for name, parts in by_topic.items()
        )
        body = module.OffsetCommitRequest(group_id=group, member_id="", topics=topics)
        answer = await self._ask(body, f"reset group {group!r}")
        _check(f"Group {group} was not reset", [part for topic in answer["topics"] for part in topic["partitions"]])

    async def delete_group(self, group: str) -> None:
        module = _schema("delete_groups", 2)
        answer = await self._ask(module.DeleteGroupsRequest(groups_names=(group,)), f"delete group {group!r}")
        _check(f"Group {group} was not deleted", answer["results"])


def batch(key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A record batch of one record, with the time of now.

    The record is written down as the reply of XRANGE that an entry with it would give, since `decode_entries` makes
    batches of such replies. Id and numbering of that entry do not matter: the batch begins at offset 0.
    """
    words: list[bytes] = []
    for name, content in ((b"key", key), (b"value", value)):
        words += [] if content is None else [name, content]
    words += [b"timestamp", b"%d" % now_ms()]
    for header, content in headers:
        words += [b"header." + header, content]
    entry = b"*1\r\n*2\r\n$3\r\n0-1\r\n" + pack(*words)
    (made,) = decode_entries(entry, 10, True, 1 << 30, False)
    return made._replace(base_offset=0).assembled(0)


def _schema(api: str, version: int) -> Any:
    """kio's module with the entities of a request."""
    return import_module(f"kio.schema.{api}.v{version}.request")


def _check(what: str, answers: Iterable[Mapping[str, Any]]) -> None:
    """Raises Refusal for the first answer with an error."""
    for answer in answers:
        code = ErrorCode(answer["error_code"])
        if code is not ErrorCode.none:
            told = answer.get("error_message") or _SENTENCES.get(code) or code.name.replace("_", " ")
            raise Refusal(f"{what}: {str(told).rstrip('.')}.")
