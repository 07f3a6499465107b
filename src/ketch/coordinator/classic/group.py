"""One group's state and the transitions between them, as Kafka's classic GroupCoordinator has them.

    Empty ──join──> PreparingRebalance ──all joined or time up──> CompletingRebalance ──leader syncs──> Stable
      ^                     │  ^                                        │                                 │
      └──── last one gone ──┘  └──────── join, leave, expiry ───────────┴─────────────────────────────────┘

What a state does with an event is read off TABLE, at the end; `Group.handle(event, now)` looks it up there and returns
effects, and `Group.deadline` says when the next Tick is due. Static members (KIP-345) keep their place by their
instance id.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.coordinator.classic.events import (
    Assigned,
    Commit,
    Effect,
    Event,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    Removed,
    Sync,
    SyncResult,
)
from ketch.coordinator.classic.member import GroupConfig, Member, State
from ketch.coordinator.machine import Persist, Reply, Tick

_SHORTEST = 1.0  # with a rebalance timeout of 0 the timer would spin while static members are away


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
    timer: float | None = None  # when the state's own time is up: for joining in Preparing, else for syncing
    delay_until: float | None = None  # while a group that was empty waits for more members: how far that may go
    joined_in_delay: bool = False
    assigned_here: bool = False  # the leader's assignment came to this process; else the group was loaded with it
    term: str = "0"  # see `Machine`, as the next one
    held_at: float = -math.inf
    effects: list[Effect] = field(default_factory=list)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """What follows from an event, in the order it has to be done."""
        self.effects = []
        TABLE[type(event)][self.state](self, event, now)
        effects, self.effects = self.effects, []
        return effects

    @property
    def deadline(self) -> float | None:
        """When the next Tick is due; None while there is nothing to wait for."""
        times = [member.deadline for member in self.members.values() if not member.excused]
        times += self.pending.values()
        if self.timer is not None:
            times.append(self.timer)
        return min(times, default=None)

    @property
    def is_idle(self) -> bool:
        """Whether it waits for nothing: it has no members, has given no member id away, and no rebalance goes on."""
        return not self.members and not self.pending and self.timer is None

    def retire(self) -> bool:
        """The group is about to be deleted; False where it has members."""
        if self.state is not State.EMPTY:
            return False
        self.state = State.DEAD
        return True

    @property
    def max_rebalance_timeout(self) -> float:
        return max(_SHORTEST, *(member.rebalance_timeout for member in self.members.values()), 0.0)

    def reply(self, token: Hashable, result: JoinResult | SyncResult | ErrorCode) -> None:
        self.effects.append(Reply(token, result))


Transition = Callable[[Group, Any, float], None]


# -- joining


def join_empty(group: Group, event: Join, now: float) -> None:
    _join(group, event, now, False, _rejoin, _restart)


def join_preparing(group: Group, event: Join, now: float) -> None:
    """Places go to those who come first: a member that has not come yet has none."""
    member = group.members.get(event.member_id)
    if member is not None and member.join_token is not None:
        full = False
    else:
        full = sum(m.join_token is not None for m in group.members.values()) >= group.config.max_size
    _join(group, event, now, full, _rejoin, _restart)


def join_completing(group: Group, event: Join, now: float) -> None:
    _join(group, event, now, _full(group, event), _rejoin_completing, _restart)


def join_stable(group: Group, event: Join, now: float) -> None:
    _join(group, event, now, _full(group, event), _rejoin_stable, _restart_stable)


def _full(group: Group, event: Join) -> bool:
    return event.member_id not in group.members and len(group.members) >= group.config.max_size


def _join(group: Group, event: Join, now: float, full: bool, known: Transition, restarted: Transition) -> None:
    """What all states have in common; they differ in whether there is room, and in how they take who is known."""
    restarts = not event.member_id and event.instance_id in group.static
    error = _join_error(group, event, full and not restarts)
    if error:
        group.reply(event.token, JoinResult(error, event.member_id))
        if error is ErrorCode.group_max_size_reached:
            _give_up_place(group, event, now)
    elif restarts:
        restarted(group, event, now)
    elif event.member_id in group.members:
        known(group, event, now)
    else:
        _enter(group, event, now)


def _join_error(group: Group, event: Join, full: bool) -> ErrorCode:
    if not group.config.min_session_timeout <= event.session_timeout <= group.config.max_session_timeout:
        return ErrorCode.invalid_session_timeout
    if full:
        return ErrorCode.group_max_size_reached
    if not _compatible(group, event):
        return ErrorCode.inconsistent_group_protocol
    if not event.member_id or event.member_id in group.pending:
        return ErrorCode.none
    return _identity_error(group, event.member_id, event.instance_id)


def _give_up_place(group: Group, event: Join, now: float) -> None:
    group.pending.pop(event.member_id, None)
    if event.member_id in group.members:
        _drop(group, group.members[event.member_id], ErrorCode.group_max_size_reached)
        changed(group, now)


def _compatible(group: Group, event: Join) -> bool:
    """Every member has to speak one protocol in common."""
    if not event.protocol_type or not event.protocols:
        return False
    if group.members and event.protocol_type != group.protocol_type:
        return False
    return not group.members or not _in_common(group).isdisjoint(name for name, _ in event.protocols)


def _in_common(group: Group) -> set[str]:
    """The protocols that every member speaks; of a group with members. A client may name very many."""
    return reduce(set.intersection, ({name for name, _ in member.protocols} for member in group.members.values()))


def _identity_error(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    if instance_id is not None:
        if instance_id not in group.static:
            return ErrorCode.unknown_member_id
        if group.static[instance_id] != member_id:
            return ErrorCode.fenced_instance_id
    return ErrorCode.none if member_id in group.members else ErrorCode.unknown_member_id


def _enter(group: Group, event: Join, now: float) -> None:
    """Somebody who was not there before."""
    if event.member_id:
        del group.pending[event.member_id]
        _add(group, event, event.member_id, now)
        return
    member_id = group.new_member_id(event.client_id if event.instance_id is None else event.instance_id)
    if event.instance_id is None and event.id_required:
        group.pending[member_id] = now + event.session_timeout
        group.reply(event.token, JoinResult(ErrorCode.member_id_required, member_id))
    else:
        _add(group, event, member_id, now)


def _add(group: Group, event: Join, member_id: str, now: float) -> None:
    group.protocol_type = event.protocol_type
    group.members[member_id] = Member(
        member_id, event.instance_id, event.client_id, event.host, event.session_timeout, event.rebalance_timeout,
        event.protocols, deadline=now + group.config.new_member_join_timeout, join_token=event.token, new=True,
        skips_assignment=event.skips_assignment,
    )  # fmt: skip
    if event.instance_id is not None:
        group.static[event.instance_id] = member_id
    group.joined_in_delay = True
    changed(group, now)


def _rejoin(group: Group, event: Join, now: float) -> None:
    """A member that is known takes part in a rebalance, or starts one."""
    member = group.members[event.member_id]
    if member.join_token is not None:
        # The same member asks once more, on a new connection say: nobody waits for the earlier answer.
        group.reply(member.join_token, JoinResult(ErrorCode.rebalance_in_progress, member.id))
    member.client_id, member.host = event.client_id, event.host
    member.session_timeout, member.rebalance_timeout = event.session_timeout, event.rebalance_timeout
    member.protocols, member.skips_assignment = event.protocols, event.skips_assignment
    member.join_token = event.token
    changed(group, now)


def _rejoin_completing(group: Group, event: Join, now: float) -> None:
    """It has missed the answer, unless it has changed its mind."""
    member = group.members[event.member_id]
    if member.protocols != event.protocols:
        _rejoin(group, event, now)
        return
    _touch(member, now)
    group.reply(event.token, _current(group, member))


def _rejoin_stable(group: Group, event: Join, now: float) -> None:
    """A leader that joins again wants a new assignment: the partitions have changed, say."""
    if group.leader == event.member_id:
        _rejoin(group, event, now)
    else:
        _rejoin_completing(group, event, now)


def _restart(group: Group, event: Join, now: float) -> None:
    _replace(group, event, now)
    changed(group, now)


def _restart_stable(group: Group, event: Join, now: float) -> None:
    """A static member that comes back as it was goes on in the same generation."""
    old_leader = group.leader
    member = _replace(group, event, now)
    if select_protocol(group) != group.protocol:
        changed(group, now)
        return
    member.join_token = None
    group.effects.append(Persist())
    group.reply(event.token, _resumed(group, member, old_leader))


def _replace(group: Group, event: Join, now: float) -> Member:
    """A static member has been restarted: it takes its predecessor's place, who is fenced from now on."""
    assert event.instance_id is not None
    old = group.members.pop(group.static[event.instance_id])
    member_id = group.new_member_id(event.instance_id)
    member = Member(
        member_id, event.instance_id, event.client_id, event.host, event.session_timeout, event.rebalance_timeout,
        event.protocols, old.assignment, now + event.session_timeout, event.token,
        synced=old.synced, skips_assignment=event.skips_assignment,
    )  # fmt: skip
    group.members[member_id] = member
    group.static[event.instance_id] = member_id
    if group.leader == old.id:
        group.leader = member_id
    _dismiss(group, old, ErrorCode.fenced_instance_id)
    return member


def _resumed(group: Group, member: Member, old_leader: str | None) -> JoinResult:
    """The generation goes on with a new incarnation; a leader is told so only if it knows to skip the assignment."""
    result = _current(group, member)
    if group.leader != member.id:
        return result
    if member.skips_assignment:
        return replace(result, skip_assignment=True)
    return replace(result, leader=old_leader or "", members=())


def _current(group: Group, member: Member) -> JoinResult:
    everyone = group.members.values() if group.leader == member.id else ()
    return JoinResult(
        ErrorCode.none, member.id, group.generation, group.protocol_type, group.protocol, group.leader or "",
        tuple((m.id, m.instance_id, m.metadata(group.protocol)) for m in everyone),
    )  # fmt: skip


# -- rebalancing


def changed(group: Group, now: float) -> None:
    """Members have come, gone or changed: a row of the table of its own."""
    CHANGED[group.state](group, None, now)


def first_rebalance(group: Group, _: Any, now: float) -> None:
    """Nobody was there: more may be coming (`group.initial.rebalance.delay.ms`)."""
    group.state = State.PREPARING
    group.delay_until = now + group.max_rebalance_timeout
    group.timer = now + group.config.initial_rebalance_delay
    group.joined_in_delay = False
    if not group.config.initial_rebalance_delay:
        _complete(group, now)


def rebalance(group: Group, _: Any, now: float) -> None:
    """All members are asked to join again; those that wait for an assignment get none."""
    for member in group.members.values():
        if member.sync_token is not None:
            group.reply(member.sync_token, SyncResult(ErrorCode.rebalance_in_progress))
            member.sync_token = None
            _touch(member, now)
    group.state = State.PREPARING
    group.timer = now + group.max_rebalance_timeout
    complete_if_all_joined(group, _, now)


def complete_if_all_joined(group: Group, _: Any, now: float) -> None:
    everybody = all(member.join_token is not None for member in group.members.values())
    if everybody and not group.pending and group.delay_until is None:
        _complete(group, now)


def _complete(group: Group, now: float) -> None:
    """The members that have joined make up the next generation; dynamic members that have not are dropped."""
    for member in [m for m in group.members.values() if m.join_token is None and m.instance_id is None]:
        _drop(group, member, ErrorCode.unknown_member_id)
    group.delay_until = None
    if not group.members:
        _end(group)
    elif any(member.join_token is not None for member in group.members.values()):
        _begin_generation(group, now)
    else:
        # Only static members that are away: they keep their places until their sessions end.
        group.timer = now + group.max_rebalance_timeout


def _end(group: Group) -> None:
    group.generation += 1
    group.state, group.protocol, group.leader, group.timer = State.EMPTY, None, None, None
    group.effects.append(Persist())


def _begin_generation(group: Group, now: float) -> None:
    group.generation += 1
    group.state = State.COMPLETING
    group.protocol = select_protocol(group)
    joined = [member for member in group.members.values() if member.join_token is not None]
    if not any(member.id == group.leader for member in joined):
        group.leader = joined[0].id
    group.timer = now + group.max_rebalance_timeout
    for member in joined:  # a static member that is away has nothing to send
        member.synced = member.new = False
        group.reply(member.join_token, _current(group, member))
        member.join_token = None
        _touch(member, now)


def select_protocol(group: Group) -> str:
    """Each member votes for the first of its protocols that all have in common."""
    common = _in_common(group)
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in group.members.values())
    return votes.most_common(1)[0][0]


# -- syncing


def sync_preparing(group: Group, event: Sync, now: float) -> None:
    if _syncing(group, event, now) is not None:
        group.reply(event.token, SyncResult(ErrorCode.rebalance_in_progress))


def sync_completing(group: Group, event: Sync, now: float) -> None:
    member = _syncing(group, event, now)
    if member is None:
        return
    if member.sync_token is not None:
        group.reply(member.sync_token, SyncResult(ErrorCode.rebalance_in_progress))
    member.sync_token = event.token
    _synced(group, member)
    if group.leader == member.id:
        _assign(group, event, now)


def sync_stable(group: Group, event: Sync, now: float) -> None:
    member = _syncing(group, event, now)
    if member is not None:
        _synced(group, member)
        group.reply(event.token, _assigned(group, member))


def _syncing(group: Group, event: Sync, now: float) -> Member | None:
    """The member; None where it has been told an error."""
    error = _member_error(group, event)
    if not error and (
        event.protocol_type not in (None, group.protocol_type) or event.protocol not in (None, group.protocol)
    ):
        error = ErrorCode.inconsistent_group_protocol
    if error:
        group.reply(event.token, SyncResult(error))
        return None
    member = group.members[event.member_id]
    _touch(member, now)
    return member


def _synced(group: Group, member: Member) -> None:
    member.synced = True
    if all(m.synced for m in group.members.values()):
        group.timer = None


def _assign(group: Group, event: Sync, now: float) -> None:
    """The leader's word: the group is stable."""
    group.state, group.assigned_here = State.STABLE, True
    for member in group.members.values():
        member.assignment = event.assignments.get(member.id, b"")
    group.effects.append(Persist())
    for member in group.members.values():
        if member.sync_token is not None:
            group.reply(member.sync_token, _assigned(group, member))
            member.sync_token = None
            _touch(member, now)
    group.effects.append(Assigned())


def _assigned(group: Group, member: Member) -> SyncResult:
    return SyncResult(ErrorCode.none, group.protocol_type, group.protocol, member.assignment)


# -- staying and going


def alive(group: Group, event: Heartbeat | Commit, now: float) -> None:
    _alive(group, event, now, ErrorCode.none)


def alive_but_late(group: Group, event: Heartbeat | Commit, now: float) -> None:
    """The member learns of the rebalance: it is to join, and not to commit what another member may read by now."""
    _alive(group, event, now, ErrorCode.rebalance_in_progress)


def _alive(group: Group, event: Heartbeat | Commit, now: float, otherwise: ErrorCode) -> None:
    error = _member_error(group, event)
    if not error:
        _touch(group.members[event.member_id], now)
    group.reply(event.token, error or otherwise)


def commit_empty(group: Group, event: Commit, now: float) -> None:
    """Without members a client without a generation may: it assigned itself, or is an administrator's tool."""
    group.reply(event.token, ErrorCode.none if event.generation < 0 else _member_error(group, event))


def _member_error(group: Group, event: Sync | Heartbeat | Commit) -> ErrorCode:
    error = _identity_error(group, event.member_id, event.instance_id)
    if error:
        return error
    return ErrorCode.none if event.generation == group.generation else ErrorCode.illegal_generation


def _touch(member: Member, now: float) -> None:
    member.deadline = now + member.session_timeout


def leave(group: Group, event: Leave, now: float) -> None:
    if _leave(group, event):
        changed(group, now)


def leave_preparing(group: Group, event: Leave, now: float) -> None:
    """Perhaps everybody waited for it, even if it was only expected."""
    _leave(group, event)
    complete_if_all_joined(group, event, now)


def _leave(group: Group, event: Leave) -> bool:
    """Whether it was a member."""
    member_id = event.member_id
    if not member_id and event.instance_id is not None:
        member_id = group.static.get(event.instance_id, "")
    if group.pending.pop(member_id, None) is not None:
        group.reply(event.token, ErrorCode.none)
        return False
    error = _identity_error(group, member_id, event.instance_id)
    group.reply(event.token, error)
    if not error:
        _drop(group, group.members[member_id], ErrorCode.unknown_member_id)
    return not error


def _drop(group: Group, member: Member, error: ErrorCode) -> None:
    del group.members[member.id]
    if member.instance_id is not None:
        del group.static[member.instance_id]
    if group.leader == member.id:
        group.leader = next(iter(group.members), None)
    _dismiss(group, member, error)


def _dismiss(group: Group, member: Member, error: ErrorCode) -> None:
    """Requests that still wait in its name are answered."""
    if member.join_token is not None:
        group.reply(member.join_token, JoinResult(error, member.id))
    if member.sync_token is not None:
        group.reply(member.sync_token, SyncResult(error))
    group.effects.append(Removed(member.id))


# -- time


def tick_empty(group: Group, _: Tick, now: float) -> None:
    for member_id in [member_id for member_id, until in group.pending.items() if until <= now]:
        del group.pending[member_id]


def tick_preparing(group: Group, event: Tick, now: float) -> None:
    tick_empty(group, event, now)
    for member in [m for m in group.members.values() if m.expired(now)]:
        _drop(group, member, ErrorCode.unknown_member_id)
    if group.timer is None or group.timer > now:
        complete_if_all_joined(group, event, now)
    elif group.delay_until is not None and group.joined_in_delay and now < group.delay_until:
        group.timer = min(now + group.config.initial_rebalance_delay, group.delay_until)
        group.joined_in_delay = False
    else:
        _complete(group, now)


def tick_generation(group: Group, event: Tick, now: float) -> None:
    """Members that were told of the generation and never asked for their assignment go like those that are silent."""
    tick_empty(group, event, now)
    late = group.timer is not None and group.timer <= now
    gone = [m for m in group.members.values() if m.expired(now) or (late and not m.synced)]
    for member in gone:
        _drop(group, member, ErrorCode.unknown_member_id)
    if late:
        group.timer = None
    if gone:
        changed(group, now)


# -- strangers, dead groups, and the table


def stranger(group: Group, event: Sync | Heartbeat, _: float) -> None:
    """There are no members, so the client is none."""
    error = ErrorCode.unknown_member_id
    group.reply(event.token, SyncResult(error) if isinstance(event, Sync) else error)


def dead(group: Group, event: Any, _: float) -> None:
    """The client looks for the coordinator and tries again."""
    error = ErrorCode.coordinator_not_available
    match event:
        case Join():
            group.reply(event.token, JoinResult(error, event.member_id))
        case Sync():
            group.reply(event.token, SyncResult(error))
        case Heartbeat() | Leave() | Commit():
            group.reply(event.token, error)


def _row(*transitions: Transition) -> dict[State, Transition]:
    return dict(zip(State, (*transitions, dead), strict=True))


# fmt: off
TABLE: dict[type, dict[State, Transition]] = {
    #               Empty            Preparing               Completing       Stable           (Dead: dead)
    Join:      _row(join_empty,      join_preparing,         join_completing, join_stable),
    Sync:      _row(stranger,        sync_preparing,         sync_completing, sync_stable),
    Heartbeat: _row(stranger,        alive_but_late,         alive,           alive),
    Commit:    _row(commit_empty,    alive,                  alive_but_late,  alive),
    Leave:     _row(leave,           leave_preparing,        leave,           leave),
    Tick:      _row(tick_empty,      tick_preparing,         tick_generation, tick_generation),
}
CHANGED =      _row(first_rebalance, complete_if_all_joined, rebalance,       rebalance)
# fmt: on
