"""Each row of the dispatch table with each right taken away, on Ketch and on Apache Kafka: no answer differs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ketch.broker.api import Api
from ketch.security.acls import Acl, Operation
from tests.broker.protocol.test_access import (
    BY_REGEX,
    CODES,
    COMMIT,
    GROUP,
    JOINS,
    PARAMETERS,
    SHARE_JOINS,
    SHARES,
    TOPIC,
    UNCHANGED,
    UNKNOWN_ID,
    Case,
    codes,
    grant,
    rights,
)
from tests.support.acls import allow
from tests.support.apache_kafka import missing_tools
from tests.support.authorizers import Side, both_sides
from tests.support.kafka import Kafka
from tests.support.ketch import eventually
from tests.support.share import new_id

NO_KAFKA = missing_tools()
pytestmark = pytest.mark.skipif(NO_KAFKA is not None, reason=str(NO_KAFKA))

# Rows of which Kafka's broker has nothing to answer with, or that it answers otherwise for another reason.
ELSEWHERE = {
    "DescribeQuorum",  # Ketch has none: it refuses with 35 whoever asks
    "UpdateFeatures",
}
TOPIC_DENIED, UNKNOWN = 29, {100}
OF_SHARE_GROUPS = {"ShareGroupDescribe", "ShareFetch", "ShareAcknowledge", "DescribeShareGroupOffsets"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with both_sides(tmp_path_factory.mktemp("ketch"), ["t"]) as sides:
        for side in sides:
            prepare(side.admin)
        yield sides


def prepare(admin: Kafka) -> None:
    """The group `g` with a commit, the consumer group `c` with a member, and the transaction `x` that is open."""
    assert admin.ask(68, 1, **JOINS).error_code == 0
    commit = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": COMMIT}
    eventually(lambda: not any(codes(admin.ask(8, 8, **commit))), 60.0)
    made = eventually(
        lambda: (
            (found := admin.ask(22, 4, transactional_id="x", transaction_timeout=600_000)).error_code == 0 and found
        ),
        60.0,
    )
    producer = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch, "transactional_id": "x"}
    given = {f"v3_and_below_{name}": value for name, value in producer.items()}
    topics = [{"name": "t", "partitions": [0]}]
    eventually(lambda: not any(codes(admin.ask(24, 3, **given, v3_and_below_topics=topics))), 60.0)


def reads(admin: Kafka) -> None:
    """The share group `s` has a member to which `t` is assigned, which Kafka does once it has made the group's state.

    Only the first member ever needs more than a moment.
    """
    said = {**SHARE_JOINS, "member_id": new_id()}

    def assigned() -> bool:
        found = admin.ask(76, 1, **said)
        said.update(member_epoch=found.member_epoch, subscribed_topic_names=None)
        return found.assignment is not None and bool(found.assignment.topic_partitions)

    eventually(assigned, 60.0)


def answers(side: Side, api: Api, case: Case, acls: list[Acl]) -> list[int]:
    """The codes of denials, and whether a right without a code shows in the answer.

    Ketch does not know the id of a topic that the client may not describe; Kafka denies it (docs/security-acls.md).
    """
    side.set([acl._replace(principal="User:alice") for acl in acls])
    SHARES["topics"][0]["topic_id"] = side.admin.topic_id("t")
    answer = case.ask(side.caller("alice"), api)
    found = set(codes(answer))
    if case.shows is UNKNOWN_ID:
        return sorted(CODES & found | ({TOPIC_DENIED} if UNKNOWN & found else set()))
    hidden = [number for number, shows in enumerate(case.shows.values()) if shows(answer)]
    return sorted({*CODES & found, *(-number - 1 for number in hidden)})


def test_a_regular_expression_finds_what_the_member_may_describe(both: tuple[Side, Side]) -> None:
    ours, theirs = (found_by_regex(side) for side in both)
    assert ours == theirs == ({"re-a"}, 0, 29)


def found_by_regex(side: Side) -> tuple[set[str], int, int]:
    """The topics that a member of a group is given, and how the group is described to it before and after its rights.

    Kafka looks for topics in the background: so there are heartbeats until the member has partitions.
    """
    for name in ("re-a", "re-b"):
        side.admin.create(name)
    member = allow(GROUP, "r", Operation.ALL, principal="User:alice")
    side.set([member, allow(TOPIC, "re-a", Operation.DESCRIBE, principal="User:alice")])
    alice, who = side.caller("alice"), {"group_id": "r", "member_id": "r"}
    epoch = alice.ask(68, 1, **{**JOINS, **who, **BY_REGEX}).member_epoch

    def given() -> set[str]:
        nonlocal epoch
        epoch = alice.ask(68, 1, **who, **UNCHANGED, member_epoch=epoch).member_epoch
        group = side.admin.ask(69, 1, group_ids=["r"]).groups[0]
        return {part.topic_name for each in group.members for part in each.assignment.topic_partitions}

    found = eventually(given, 60.0)
    allowed = alice.ask(69, 1, group_ids=["r"]).groups[0].error_code
    side.set([member])
    return found, allowed, alice.ask(69, 1, group_ids=["r"]).groups[0].error_code


@pytest.mark.parametrize(("api", "case"), [each for each in PARAMETERS if each.values[0].name not in ELSEWHERE])
def test_each_right_taken_away_shows_in_the_same_way(both: tuple[Side, Side], api: Api, case: Case) -> None:
    """All rights; each right taken away; and in its place each other one that is enough."""
    needed = rights(api.touches, case)
    last = [each[-1] for each in needed]
    chosen = [last]
    for number, alternatives in enumerate(needed):
        others = [each for other, each in enumerate(last) if other != number]
        chosen += [others, *([*others, each] for each in alternatives[:-1])]
    if api.name in OF_SHARE_GROUPS:
        for side in both:
            side.set([])
            reads(side.admin)
    for touches in chosen:
        case.renew()
        acls = [grant(case, touch) for touch in touches]
        ours, theirs = (answers(side, api, case, acls) for side in both)
        assert ours == theirs, acls
