"""The table of kinds, without Redis: what is stored names its kind, and what classic groups tell strangers."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ketch.broker.coordination.assignments import Assignments
from ketch.broker.coordination.cluster import Cluster
from ketch.broker.coordination.kinds.classic import ClassicKind
from ketch.broker.coordination.kinds.kind import Kinds, UnknownKind
from ketch.broker.coordination.native_groups import NativeGroups
from ketch.configs.settings import Settings
from ketch.coordinator.classic.events import Commit, Heartbeat, Join, JoinResult, Leave, Sync, SyncResult
from ketch.coordinator.classic.group import Group
from ketch.log.log import Log
from ketch.redis.links import links
from ketch.redis.url import RedisAddress
from tests.broker.test_machines import Flag, FlagKind, Lower, Raise

JOIN = Join(1, "", None, "c", "/h", 10.0, 60.0, "consumer", (("range", b""),), id_required=False)


@pytest.fixture
def kinds() -> Kinds[Any]:
    """Classic groups, and a second kind in the same namespace."""
    settings = Settings()
    log = Log(settings, links(RedisAddress.parse("redis://127.0.0.1:1"), 1))  # which nobody asks
    return Kinds(ClassicKind(settings, NativeGroups(log, Cluster(settings, log), Assignments(), set().add)), FlagKind())


def test_the_field_type_is_written_for_the_second_kind_only(kinds: Kinds[Any]) -> None:
    group, flag = kinds.new("g"), Flag("f", up=True)
    assert "type" not in kinds.to_fields(group)
    assert kinds.to_fields(flag) == {"type": "flag", "up": "yes"}
    assert kinds.from_fields("f", kinds.to_fields(flag), 0.0) == flag
    stored = {**kinds.to_fields(group), "generation": "7"}
    for fields in (stored, {"type": "classic", **stored}):
        assert kinds.from_fields("g", fields, 0.0).generation == 7
    with pytest.raises(UnknownKind, match="g is stored as share"):
        kinds.from_fields("g", {"type": "share", **stored}, 0.0)


def test_an_empty_group_gives_way(kinds: Kinds[Any]) -> None:
    group = kinds.new("g")
    group.term, group.held_at = "5", 1.0
    flag = kinds.meet(group, Raise(1))
    assert (type(flag), flag.id, flag.term, flag.held_at) == (Flag, "g", "5", 1.0)
    assert kinds.meet(flag, Raise(1)) is flag
    assert type(kinds.meet(flag, JOIN)) is Group
    group.handle(JOIN, 0.0)
    assert kinds.meet(group, JOIN) is group
    assert kinds.meet(group, Lower(1)) is None


def test_who_does_not_give_way_keeps_its_id(kinds: Kinds[Any]) -> None:
    """Without members, too; only an id of which nothing is stored is free."""
    stubborn = FlagKind()
    stubborn.gives_way = False
    some = Kinds[Any](kinds.of(kinds.new("g")), stubborn)
    group, flag = some.new("g"), Flag("f")
    group.term = flag.term = "5"
    assert flag.is_idle
    assert some.meet(group, Raise(1)) is None
    assert some.meet(flag, JOIN) is None
    assert some.meet(flag, Lower(1)) is flag
    group.term = flag.term = "0"
    assert type(some.meet(group, Raise(1))) is Flag
    assert type(some.meet(flag, JOIN)) is Group


REFUSED = [
    (JOIN, JoinResult(ErrorCode.inconsistent_group_protocol)),
    (Sync(1, "m", None, 1, None, None, {}), SyncResult(ErrorCode.unknown_member_id)),
    (Heartbeat(1, "m", None, 1), ErrorCode.unknown_member_id),
    (Leave(1, "m", None), ErrorCode.unknown_member_id),
    (Commit(1, "", None, -1), ErrorCode.group_id_not_found),
]


@pytest.mark.parametrize(("event", "answer"), REFUSED, ids=[type(event).__name__ for event, _ in REFUSED])
def test_classic_clients_of_another_kind_of_group(kinds: Kinds[Any], event: Any, answer: Any) -> None:
    assert kinds.meet(Flag("f", up=True), event) is None
    assert kinds.asking(event).refusal(event) == answer
