"""One group's state and the transitions between them, as Kafka's classic GroupCoordinator has them.

    Empty ──join──> PreparingRebalance ──all joined or time up──> CompletingRebalance ──leader syncs──> Stable
      ^                     │  ^                                        │                                 │
      └──── last one gone ──┘  └──────── join, leave, expiry ───────────┴─────────────────────────────────┘

`Group.handle(event, now)` looks an event up in TABLE by (event, state) and returns effects; `Group.deadline` says when
the next Tick is due. Static members (KIP-345) keep their place by their instance id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.coordinator.events import (
    Commit,
    Effect,
    Event,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    Persist,
    Protocols,
    Removed,
    Reply,
    Sync,
    SyncResult,
    Tick,
)


class State(StrEnum):
    """Names as Kafka shows them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's `group.*` settings, in seconds."""

    min_session_timeout: float = 6.0
    max_session_timeout: float = 1800.0
    max_size: int = 2**31 - 1
    initial_rebalance_delay: float = 0.0
    new_member_join_timeout: float = 300.0


@dataclass(slots=True)
class Member:
    """One member. Its tokens stand for requests of its that wait for an answer."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: Protocols
    assignment: bytes = b""
    deadline: float = 0.0  # of its session
    join_token: Hashable | None = None
    sync_token: Hashable | None = None
    synced: bool = False  # has sent its Sync of this generation
    skips_assignment: bool = False

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    @property
    def waiting(self) -> bool:
        return self.join_token is not None or self.sync_token is not None


@dataclass(slots=True)
class Group:
    """One group.

    Args:
        new_member_id: makes a member's id from its client id or instance id.
    """

    id: str
    config: GroupConfig
    new_member_id: Callable[[str], str]
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending: dict[str, float] = field(default_factory=dict)  # ids given and not yet joined with -> until when
    rebalance_deadline: float = 0.0
    initial_until: float = 0.0  # while an empty group waits for more members (group.initial.rebalance.delay.ms)
    joined_in_delay: bool = False
    effects: list[Effect] = field(default_factory=list)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """What follows from an event, in the order it has to be done."""
        self.effects = []
        TABLE[type(event), self.state](self, event, now)
        effects, self.effects = self.effects, []
        return effects

    @property
    def deadline(self) -> float | None:
        """When the next Tick is due; None while there is nothing to wait for."""
        times = [member.deadline for member in self.members.values() if not member.waiting]
        times += self.pending.values()
        if self.state in (State.PREPARING, State.COMPLETING):
            times.append(self.initial_until or self.rebalance_deadline)
        return min(times, default=None)

    @property
    def max_rebalance_timeout(self) -> float:
        return max((member.rebalance_timeout for member in self.members.values()), default=0.0)

    def reply(self, token: Hashable, result: JoinResult | SyncResult | ErrorCode) -> None:
        self.effects.append(Reply(token, result))


# -- joining


def join(group: Group, event: Join, now: float) -> None:
    error = _join_error(group, event)
    if error:
        group.reply(event.token, JoinResult(error, event.member_id))
    elif not event.member_id:
        _join_new(group, event, now)
    elif event.member_id in group.pending:
        del group.pending[event.member_id]
        _add(group, event, event.member_id, now)
    else:
        _rejoin(group, event, now)


def _join_error(group: Group, event: Join) -> ErrorCode:
    if not group.config.min_session_timeout <= event.session_timeout <= group.config.max_session_timeout:
        return ErrorCode.invalid_session_timeout
    if not _compatible(group, event):
        return ErrorCode.inconsistent_group_protocol
    if event.member_id:
        error = _identity_error(group, event.member_id, event.instance_id)
        return ErrorCode.none if error and event.member_id in group.pending else error
    known = event.instance_id is not None and event.instance_id in group.static
    if not known and len(group.members) + len(group.pending) >= group.config.max_size:
        return ErrorCode.group_max_size_reached
    return ErrorCode.none


def _compatible(group: Group, event: Join) -> bool:
    """Every member has to speak one protocol in common."""
    if not event.protocol_type or not event.protocols:
        return False
    if not group.members:
        return True
    if event.protocol_type != group.protocol_type:
        return False
    return bool({name for name, _ in event.protocols} & _common(group))


def _common(group: Group) -> set[str]:
    return set.intersection(*({name for name, _ in member.protocols} for member in group.members.values()))


def _identity_error(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    if instance_id is not None:
        if instance_id not in group.static:
            return ErrorCode.unknown_member_id
        if group.static[instance_id] != member_id:
            return ErrorCode.fenced_instance_id
    return ErrorCode.none if member_id in group.members else ErrorCode.unknown_member_id


def _join_new(group: Group, event: Join, now: float) -> None:
    if event.instance_id is not None:
        member_id = group.new_member_id(event.instance_id)
        if event.instance_id in group.static:
            _replace_static(group, event, member_id, now)
        else:
            _add(group, event, member_id, now)
        return
    member_id = group.new_member_id(event.client_id)
    if event.id_required:
        group.pending[member_id] = now + event.session_timeout
        group.reply(event.token, JoinResult(ErrorCode.member_id_required, member_id))
    else:
        _add(group, event, member_id, now)


def _add(group: Group, event: Join, member_id: str, now: float) -> None:
    """A member that was not there before."""
    group.protocol_type = event.protocol_type
    member = Member(
        member_id, event.instance_id, event.client_id, event.host, event.session_timeout, event.rebalance_timeout,
        event.protocols, join_token=event.token, skips_assignment=event.skips_assignment,
    )  # fmt: skip
    member.deadline = now + group.config.new_member_join_timeout
    group.members[member_id] = member
    if event.instance_id is not None:
        group.static[event.instance_id] = member_id
    group.joined_in_delay = True
    _rebalance(group, now)


def _rejoin(group: Group, event: Join, now: float) -> None:
    """A member that is known: it takes part in the rebalance, starts one, or is told what it has missed."""
    member = group.members[event.member_id]
    changed = member.protocols != event.protocols
    starts_one = changed or (group.state is State.STABLE and group.leader == member.id)
    if group.state is State.PREPARING or starts_one:
        _update(group, member, event)
        _rebalance(group, now)
        return
    _touch(member, now)
    group.reply(event.token, _current(group, member))


def _update(group: Group, member: Member, event: Join) -> None:
    if member.join_token is not None and member.join_token != event.token:
        # The same member asks once more, on a new connection say: nobody waits for the earlier answer.
        group.reply(member.join_token, JoinResult(ErrorCode.rebalance_in_progress, member.id))
    member.client_id, member.host = event.client_id, event.host
    member.session_timeout, member.rebalance_timeout = event.session_timeout, event.rebalance_timeout
    member.protocols, member.skips_assignment = event.protocols, event.skips_assignment
    member.join_token = event.token


def _replace_static(group: Group, event: Join, member_id: str, now: float) -> None:
    """A static member has been restarted: it takes its predecessor's place, who is fenced from now on."""
    assert event.instance_id is not None
    old = group.members.pop(group.static[event.instance_id])
    _dismiss(group, old, ErrorCode.fenced_instance_id)
    was_leader = group.leader == old.id
    member = Member(
        member_id, event.instance_id, event.client_id, event.host, event.session_timeout, event.rebalance_timeout,
        event.protocols, old.assignment, now + event.session_timeout, event.token,
        synced=old.synced, skips_assignment=event.skips_assignment,
    )  # fmt: skip
    group.members[member_id] = member
    group.static[event.instance_id] = member_id
    if was_leader:
        group.leader = member_id
    group.effects.append(Removed(old.id))
    if group.state is State.STABLE and _select_protocol(group) == group.protocol:
        member.join_token = None
        group.effects.append(Persist())
        group.reply(event.token, _resumed(group, member, old.id if was_leader else None))
    else:
        _rebalance(group, now)


def _resumed(group: Group, member: Member, old_leader: str | None) -> JoinResult:
    """The generation goes on with a new incarnation; a leader is told so only if it knows to skip the assignment."""
    if old_leader is None:
        return _current(group, member)
    if member.skips_assignment:
        return _current(group, member, skip=True)
    return JoinResult(ErrorCode.none, member.id, group.generation, group.protocol_type, group.protocol, old_leader)


def _current(group: Group, member: Member, skip: bool = False) -> JoinResult:
    leads = group.leader == member.id
    everyone = tuple((m.id, m.instance_id, m.metadata(group.protocol)) for m in group.members.values())
    return JoinResult(
        ErrorCode.none, member.id, group.generation, group.protocol_type, group.protocol, group.leader or "",
        everyone if leads else (), skip,
    )  # fmt: skip


# -- rebalancing


def _rebalance(group: Group, now: float) -> None:
    """Asks everybody to join again, unless that is going on already."""
    if group.state is State.PREPARING:
        _try_to_complete(group, now)
        return
    for member in group.members.values():
        member.assignment = b"" if group.state is State.COMPLETING else member.assignment
        if member.sync_token is not None:
            group.reply(member.sync_token, SyncResult(ErrorCode.rebalance_in_progress))
            member.sync_token = None
            _touch(member, now)
    if group.state is State.EMPTY:
        delay = min(group.config.initial_rebalance_delay, group.max_rebalance_timeout)
        group.initial_until = now + delay if delay else 0.0
        group.joined_in_delay = False
    group.state = State.PREPARING
    group.rebalance_deadline = now + group.max_rebalance_timeout
    _try_to_complete(group, now)


def _try_to_complete(group: Group, now: float) -> None:
    everybody = all(member.join_token is not None for member in group.members.values())
    if everybody and not group.pending and not group.initial_until:
        _complete(group, now)


def _complete(group: Group, now: float) -> None:
    """Whoever has joined makes up the next generation; dynamic members that have not are dropped."""
    group.initial_until = 0.0
    for member in [m for m in group.members.values() if m.join_token is None and m.instance_id is None]:
        _drop(group, member, ErrorCode.unknown_member_id)
    if group.members and not any(member.join_token is not None for member in group.members.values()):
        # Only static members that are away: they keep their places until their sessions end.
        group.rebalance_deadline = now + group.max_rebalance_timeout
        return
    group.generation += 1
    if not group.members:
        group.state, group.protocol, group.leader = State.EMPTY, None, None
        group.effects.append(Persist())
        return
    _begin_generation(group, now)


def _begin_generation(group: Group, now: float) -> None:
    group.state = State.COMPLETING
    group.protocol = _select_protocol(group)
    leader = group.members.get(group.leader or "")
    if leader is None or leader.join_token is None:
        group.leader = next(member.id for member in group.members.values() if member.join_token is not None)
    group.rebalance_deadline = now + group.max_rebalance_timeout
    for member in group.members.values():
        member.synced = member.join_token is None  # a static member that is away has nothing to send
        if member.join_token is not None:
            group.reply(member.join_token, _current(group, member))
            member.join_token = None
            _touch(member, now)


def _select_protocol(group: Group) -> str:
    """Each member votes for the first of its protocols that all have in common."""
    common = _common(group)
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in group.members.values())
    return votes.most_common(1)[0][0]


# -- syncing


def sync(group: Group, event: Sync, now: float) -> None:
    error = _sync_error(group, event)
    if error:
        group.reply(event.token, SyncResult(error))
        return
    member = group.members[event.member_id]
    _touch(member, now)
    if group.state is State.STABLE:
        group.reply(event.token, _assigned(group, member))
        return
    if member.sync_token is not None:
        group.reply(member.sync_token, SyncResult(ErrorCode.rebalance_in_progress))
    member.sync_token, member.synced = event.token, True
    if group.leader == member.id:
        _assign(group, event, now)


def _sync_error(group: Group, event: Sync) -> ErrorCode:
    error = _identity_error(group, event.member_id, event.instance_id)
    if error:
        return error
    if event.generation != group.generation:
        return ErrorCode.illegal_generation
    if event.protocol_type not in (None, group.protocol_type) or event.protocol not in (None, group.protocol):
        return ErrorCode.inconsistent_group_protocol
    return ErrorCode.rebalance_in_progress if group.state is State.PREPARING else ErrorCode.none


def _assign(group: Group, event: Sync, now: float) -> None:
    """The leader's word: the group is stable."""
    for member in group.members.values():
        member.assignment = event.assignments.get(member.id, b"")
    group.state = State.STABLE
    group.effects.append(Persist())
    for member in group.members.values():
        if member.sync_token is not None:
            group.reply(member.sync_token, _assigned(group, member))
            member.sync_token = None
            _touch(member, now)


def _assigned(group: Group, member: Member) -> SyncResult:
    return SyncResult(ErrorCode.none, group.protocol_type, group.protocol, member.assignment)


# -- staying and going


def heartbeat(group: Group, event: Heartbeat, now: float) -> None:
    error = _member_error(group, event)
    if not error:
        _touch(group.members[event.member_id], now)
        error = ErrorCode.rebalance_in_progress if group.state is State.PREPARING else ErrorCode.none
    group.reply(event.token, error)


def commit(group: Group, event: Commit, now: float) -> None:
    if event.generation < 0 and not group.members:  # it assigned itself, or is an administrator's tool
        group.reply(event.token, ErrorCode.none)
        return
    error = _member_error(group, event)
    if not error:
        _touch(group.members[event.member_id], now)
        error = ErrorCode.rebalance_in_progress if group.state is State.COMPLETING else ErrorCode.none
    group.reply(event.token, error)


def _member_error(group: Group, event: Heartbeat | Commit) -> ErrorCode:
    error = _identity_error(group, event.member_id, event.instance_id)
    if error:
        return error
    return ErrorCode.none if event.generation == group.generation else ErrorCode.illegal_generation


def _touch(member: Member, now: float) -> None:
    member.deadline = now + member.session_timeout


def leave(group: Group, event: Leave, now: float) -> None:
    member_id = event.member_id
    if not member_id and event.instance_id is not None:
        member_id = group.static.get(event.instance_id, "")
    if member_id in group.pending:
        del group.pending[member_id]
        group.reply(event.token, ErrorCode.none)
        if group.state is State.PREPARING:
            _try_to_complete(group, now)
        return
    error = _identity_error(group, member_id, event.instance_id)
    group.reply(event.token, error)
    if not error:
        _remove(group, group.members[member_id], now)


def _remove(group: Group, member: Member, now: float) -> None:
    _drop(group, member, ErrorCode.unknown_member_id)
    _rebalance(group, now)


def _drop(group: Group, member: Member, error: ErrorCode) -> None:
    del group.members[member.id]
    if member.instance_id is not None and group.static.get(member.instance_id) == member.id:
        del group.static[member.instance_id]
    if group.leader == member.id:
        group.leader = next(iter(group.members), None)
    _dismiss(group, member, error)
    group.effects.append(Removed(member.id))


def _dismiss(group: Group, member: Member, error: ErrorCode) -> None:
    """Whoever still waits in its name is told."""
    if member.join_token is not None:
        group.reply(member.join_token, JoinResult(error, member.id))
    if member.sync_token is not None:
        group.reply(member.sync_token, SyncResult(error))


def tick(group: Group, _: Tick, now: float) -> None:
    for member_id in [member_id for member_id, until in group.pending.items() if until <= now]:
        del group.pending[member_id]
    for member in [m for m in group.members.values() if m.deadline <= now and not m.waiting]:
        _drop(group, member, ErrorCode.unknown_member_id)
        if group.state is not State.PREPARING:
            _rebalance(group, now)
    if group.state is State.PREPARING:
        _preparing_due(group, now)
    elif group.state is State.COMPLETING and group.rebalance_deadline <= now:
        _drop_unsynced(group, now)


def _preparing_due(group: Group, now: float) -> None:
    if group.initial_until and group.initial_until <= now:
        left = group.rebalance_deadline - now
        more = group.joined_in_delay and left > 0
        group.initial_until = now + min(group.config.initial_rebalance_delay, left) if more else 0.0
        group.joined_in_delay = False
    if not group.initial_until and group.rebalance_deadline <= now:
        _complete(group, now)
    else:
        _try_to_complete(group, now)


def _drop_unsynced(group: Group, now: float) -> None:
    """Members that were told of the generation and never asked for their assignment hold it up: out they go."""
    for member in [m for m in group.members.values() if not m.synced]:
        _drop(group, member, ErrorCode.unknown_member_id)
    _rebalance(group, now)


# -- a dead group, and the table


def _dead(group: Group, event: Any, _: float) -> None:
    error = ErrorCode.coordinator_not_available
    match event:
        case Join():
            group.reply(event.token, JoinResult(error, event.member_id))
        case Sync():
            group.reply(event.token, SyncResult(error))
        case Heartbeat() | Leave() | Commit():
            group.reply(event.token, error)


Transition = Callable[[Group, Any, float], None]
_LIVE: dict[type, Transition] = {
    Join: join,
    Sync: sync,
    Heartbeat: heartbeat,
    Leave: leave,
    Commit: commit,
    Tick: tick,
}
TABLE: dict[tuple[type, State], Transition] = {
    (event, state): transition if state is not State.DEAD else _dead
    for event, transition in _LIVE.items()
    for state in State
}
