"""ShareFetch and ShareAcknowledge: the same requests to Ketch and to Apache Kafka 4.1, every answer compared.

With dense ids offsets are Kafka's. Kafka assigns records a moment after it could: a fetch to which Ketch gave some is
asked again there until it gives some. Not compared is what Kafka answers with UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from tests.broker.protocol.test_against_kafka import until_led
from tests.support.apache_kafka import ApacheKafka, missing_tools
from tests.support.batches import batch, records
from tests.support.kafka import FIND_COORDINATOR, Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.share import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    Member,
    acquired,
    begins,
    new_id,
)
from tests.support.share_members import SHARE_GROUP_HEARTBEAT

NO_KAFKA = missing_tools()
pytestmark = [
    pytest.mark.skipif(NO_KAFKA is not None, reason=str(NO_KAFKA)),
    pytest.mark.storage("record-dense", "batch-dense"),
]
NOBODYS = "7b6d6a2c-0000-4000-8000-000000000001"  # a topic id

Told = Any


class Side:
    """One of the two brokers: two members of a group, each over a connection of its own.

    Attributes:
        expected: what the other side was told, step by step; None for the side that goes first.
        told: what this one was.
    """

    def __init__(self, port: int, topic: str, stack: ExitStack, expected: Sequence[Told] | None) -> None:
        self._port, self.topic, self._stack, self.expected = port, topic, stack, expected
        self.told: list[Told] = []
        self.kafka = self.connection()
        self.kafka.create(topic, 2, retention_ms=-1)
        until_led(self.kafka, topic)
        begins(self.kafka, topic)
        self.members = [self.member(), self.member()]

    def connection(self) -> Kafka:
        return self._stack.enter_context(Kafka(self._port))

    def member(self) -> Member:
        """One that the coordinator knows, which Kafka needs before it keeps anything of the partitions."""
        member = Member(self.connection(), self.topic)

        def joined() -> bool:
            self.kafka.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[self.topic])
            fields = {"member_id": member.id, "member_epoch": 0, "subscribed_topic_names": [self.topic]}
            answer = self.kafka.ask(SHARE_GROUP_HEARTBEAT, 1, group_id=self.topic, **fields)
            return bool(answer.error_code == 0)

        eventually(joined)
        return member

    def opened(self, member: Member) -> None:
        """Begins its session, once Kafka has the group's state of the partitions."""

        def begun() -> bool:
            member.epoch = 0
            answer = member.ask(partitions={(self.topic, 0): (), (self.topic, 1): ()}, max_records=0)
            return not any(part.error_code for topic in answer.responses for part in topic.partitions)

        eventually(begun)

    def store(self, *sizes: int) -> None:
        for size in sizes:
            self.kafka.stored(self.topic, batch(records([b"x"] * size)))

    def fetch(self, member: Member) -> None:
        """Fetches all that there is, which may take Kafka some fetches: what was given is told."""
        given: list[tuple[int, int]] = []
        wanted = None if self.expected is None else self.expected[len(self.told)]

        def complete() -> bool:
            answer = member.ask(max_wait=0 if not wanted else 200)
            assert answer.error_code == 0, answer
            runs = [run for topic in answer.responses for part in topic.partitions for run in acquired(part)]
            given.extend((offset, n) for first, last, n in runs for offset in range(first, last + 1))
            return not runs if wanted is None else len(given) >= len(wanted)

        eventually(complete, 60)
        self.told.append(sorted(given))

    def ask(self, member: Member, api: int = SHARE_FETCH, **given: Any) -> None:
        self.told.append(seen(member.ask(api, **given)))

    def acknowledge(self, member: Member, *acks: tuple[int, int, Sequence[int]], partition: int = 0) -> None:
        self.ask(member, SHARE_ACKNOWLEDGE, partitions={(self.topic, partition): acks})


def seen(answer: Any) -> Told:
    """The codes of an answer that gives no records; of a fetch only those of partitions that have some."""
    parts = []
    for part in (part for topic in answer.responses for part in topic.partitions):
        codes = int(part.error_code), int(getattr(part, "acknowledge_error_code", 0))
        if any(codes) or int(answer.__api_key__) == SHARE_ACKNOWLEDGE:
            parts.append((part.partition_index, *codes))
    return int(answer.error_code), sorted(parts)


# -- scenarios


def sessions(side: Side) -> None:
    """What a session refuses."""
    member, topic = side.members[0], side.topic
    one = {(topic, 0): ((0, 0, (ACCEPT,)),)}
    side.ask(member, epoch=3, partitions={(topic, 0): ()})
    side.ask(member, SHARE_ACKNOWLEDGE, epoch=3, partitions=one)
    side.ask(member, SHARE_ACKNOWLEDGE, epoch=0, partitions=one)
    side.ask(member, epoch=-1)
    side.ask(member, SHARE_ACKNOWLEDGE, epoch=-1)
    side.ask(member, epoch=0, partitions=one)
    side.opened(member)
    side.ask(member, epoch=9)
    side.ask(member, SHARE_ACKNOWLEDGE, epoch=9, partitions=one)
    side.ask(member, SHARE_ACKNOWLEDGE)
    side.ask(member, epoch=-1)
    side.ask(member, epoch=-1)
    side.ask(member)


def partitions(side: Side) -> None:
    """Topics and partitions that are not there."""
    member, topic = side.members[0], side.topic
    side.opened(member)
    side.ask(member, partitions={(topic, 7): ()})
    side.ask(member)
    side.ask(member, forget=[(topic, 7)])
    side.ask(member)
    side.ask(member, SHARE_ACKNOWLEDGE, partitions={(topic, 7): ((0, 0, (ACCEPT,)),)})
    side.ask(member, SHARE_ACKNOWLEDGE, partitions={(NOBODYS, 0): ((0, 0, (ACCEPT,)),)})


WRONG = (
    ((3, 1, (ACCEPT,)),),
    ((0, 0, (9,)),),
    ((0, 0, (4,)),),
    ((0, 0, (-1,)),),
    ((0, 0, ()),),
    ((0, 2, (ACCEPT, ACCEPT)),),
    ((-5, -2, (ACCEPT,)),),
    ((2, 2, (ACCEPT,)), (0, 0, (ACCEPT,))),
    ((0, 1, (ACCEPT,)), (1, 2, (ACCEPT,))),
    ((100, 100, (ACCEPT,)),),
    ((3, 6, (ACCEPT,)),),
)


def wrong_acknowledgements(side: Side) -> None:
    """None of them changes anything."""
    member, topic = side.members[0], side.topic
    side.opened(member)
    side.store(4, 1)
    side.fetch(member)
    for acks in WRONG:
        side.ask(member, partitions={(topic, 0): acks})
        side.acknowledge(member, *acks)
    side.acknowledge(member, (0, 0, (ACCEPT,)), partition=1)
    side.acknowledge(member, (0, 4, (RELEASE,)))
    side.fetch(member)


def acknowledged_again(side: Side) -> None:
    """Below the first record in flight it is no mistake, above it is one."""
    member, other = side.members
    side.opened(member)
    side.opened(other)
    side.store(3, 3)
    side.fetch(member)
    side.acknowledge(member, (0, 0, (ACCEPT,)))
    side.acknowledge(member, (0, 0, (ACCEPT,)))
    side.acknowledge(member, (4, 4, (ACCEPT,)))
    side.acknowledge(member, (4, 4, (ACCEPT,)))
    side.acknowledge(other, (1, 1, (ACCEPT,)))
    side.acknowledge(other, (0, 0, (ACCEPT,)))
    side.acknowledge(member, (0, 3, (ACCEPT,)))
    side.acknowledge(member, (5, 5, (GAP,)))
    side.acknowledge(member, (5, 5, (ACCEPT,)))


def limit(side: Side) -> None:
    """A record comes five times."""
    member = side.members[0]
    side.opened(member)
    side.store(2)
    for _ in range(6):
        side.fetch(member)
        side.acknowledge(member, (0, 1, (RELEASE,)))


def leaving(side: Side) -> None:
    """What a member has is given back, and has not been delivered."""
    member, other = side.members
    side.opened(member)
    side.opened(other)
    side.store(2, 2)
    side.fetch(member)
    side.fetch(other)
    side.ask(member, SHARE_ACKNOWLEDGE, epoch=-1, partitions={(side.topic, 0): ((0, 1, (ACCEPT, RELEASE)),)})
    side.fetch(other)
    other.client.close()
    third = side.member()
    side.opened(third)
    side.fetch(third)


@pytest.mark.parametrize(
    "scenario",
    [sessions, partitions, wrong_acknowledgements, acknowledged_again, limit, leaving],
    ids=lambda s: s.__name__,
)
def test_scenarios(
    broker: KetchServer, apache_kafka: ApacheKafka, topic: str, scenario: Callable[[Side], None]
) -> None:
    compare(broker, apache_kafka, topic, scenario)


@pytest.mark.parametrize("seed", range(4))
def test_at_random(broker: KetchServer, apache_kafka: ApacheKafka, topic: str, seed: int) -> None:
    """Two members fetch, and acknowledge what they have and what they have not.

    Which code refuses an acknowledgement beyond all records depends on what Kafka has not cleared away yet.
    """

    def scenario(side: Side) -> None:
        chance = random.Random(seed)
        end = 0
        for member in side.members:
            side.opened(member)
        for _ in range(60):
            member = chance.choice(side.members)
            step = chance.random()
            if step < 0.15:
                size = chance.randint(1, 5)
                side.store(size)
                end += size
            elif step < 0.4:
                side.fetch(member)
            else:
                first = chance.randint(0, end + 1)
                last = min(first + chance.randint(0, 4), end + 1)
                types = [chance.choice((ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, GAP)) for _ in range(first, last + 1)]
                side.acknowledge(member, (first, last, types if chance.random() < 0.5 else types[:1]))

    compare(broker, apache_kafka, topic, scenario, coarse)


def compare(
    broker: KetchServer,
    apache_kafka: ApacheKafka,
    topic: str,
    scenario: Callable[[Side], None],
    alike: Callable[[Told], Told] = lambda told: told,
) -> None:
    with ExitStack() as stack:
        ketch = Side(broker.port, topic, stack, None)
        scenario(ketch)
        reference = Side(apache_kafka.port, topic, stack, ketch.told)
        scenario(reference)
        for n, pair in enumerate(zip(ketch.told, reference.told, strict=True)):
            assert alike(pair[0]) == alike(pair[1]), n


def coarse(told: Told) -> Told:
    """INVALID_REQUEST of a partition as INVALID_RECORD_STATE."""
    if isinstance(told, tuple):
        return told[0], [(index, *(121 if code == 42 else code for code in codes)) for index, *codes in told[1]]
    return told


def test_ids_that_are_none(broker: KetchServer, topic: str) -> None:
    """Kafka answers these with UNKNOWN_SERVER_ERROR; Ketch says what is wrong."""
    with Kafka(broker.port) as client:
        client.create(topic)
        for group, member in ((topic, ""), (topic, "no-id"), (topic, str(uuid.uuid4())), ("", new_id())):
            answer = Member(client, group, member).ask(partitions={(topic, 0): ()})
            assert answer.error_code == 42
        member = Member(client, topic)
        member.ask(partitions={(topic, 0): ()})
        answer = member.ask(partitions={(NOBODYS, 0): ()})
        assert [part.error_code for part in answer.responses[0].partitions] == [100]
