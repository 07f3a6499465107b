"""Is this Redis fit to be a log? `ketch doctor` shows the checks; `ketch serve` refuses or warns by them.

`facts` is a question to one server alone. The checks are functions of its answer, without I/O. Those of a cluster are
made of the answers of all its nodes, which they name where these differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import hiredis

from ketch.errors import KetchError
from ketch.kernels import KERNEL
from ketch.redis.question import Question, call, command
from ketch.redis.resp import parse
from ketch.redis.slots import SLOTS
from ketch.store.append import appends
from ketch.store.keys import Keyspace
from ketch.store.rights import CLUSTER_COMMANDS, COMMANDS
from ketch.views import rights
from ketch.views.rights import Rights
from ketch.views.server import kind_and_version, parse_info

Verdict = Literal["ok", "warn", "fail"]

MIN_REDIS = (6, 2)
MIN_VALKEY = (7, 2)
_SHOWN = 8  # rights in one line
_SEVERITY: tuple[Verdict, ...] = ("fail", "warn", "ok")
MAX_CLOCK_SECONDS = 1.0
_RULE = "`ketch redis user broker`"
_GIVE = f"give it what {_RULE} prints"  # the user
_UNSERVED = "give every slot a node that is up (CLUSTER INFO)"
_SYNCED_BY_KETCH = "no: Ketch syncs it as its own fsync setting says"
# flushAppendOnlyFile in Redis's aof.c: the write to the file waits for the sync before, the answers do not.
_POSTPONED = "a kill of Redis while its disk is slow loses up to 2 s of acknowledged records, but not with always"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: what was looked at, the verdict, what was seen and what to do about it ("" when nothing is)."""

    name: str
    verdict: Verdict
    seen: str
    advice: str = ""

    def sentence(self) -> str:
        """For a log line or an error."""
        return f"{self.name}: {self.seen}" + (f"; {self.advice}." if self.advice else ".")


@dataclass(frozen=True, slots=True)
class Facts:
    """What one look at the server brought: INFO, what CONFIG GET may tell, its clock, commands and user."""

    info: Mapping[str, str]
    save: str | None
    appendfsync: str | None
    clock_ahead: float
    missing: tuple[str, ...]
    cluster: Mapping[str, str] | None
    by_module: int = 0
    rights: Rights = field(default_factory=Rights)


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a cluster.

    Attributes:
        name: host and port.
        of: the name of its master; None where it is one.
        found: what it has answered; why it cannot be used, as a phrase without full stop.
    """

    name: str
    of: str | None
    found: Facts | str


def checks(facts: Facts, address: str, embedded: bool = False, append: str = "auto") -> list[Check]:
    """All checks of a Redis that has answered, the first one of which says so.

    Args:
        address: where it is, as people read it.
        embedded: it is the Valkey of `ketch.embedded`, which syncs the file itself unless appendfsync is always.
        append: the setting.
    """
    facts = _own(facts) if embedded else facts
    reached = Check("Redis", "ok", f"{address} answers")
    return [reached, *(check(facts) for check in _CHECKS), _appends(facts, append), _kernel()]


def unusable(address: str, why: str) -> list[Check]:
    """The checks where Redis does not answer; `why` is a phrase without full stop."""
    advice = "start Redis, or check the address and the network in between"
    if "password" in why:  # it runs and was reached: the reason alone says what to do
        advice = ""
    elif "NOPERM" in why:
        advice = f"give the user what {_RULE} prints"
    return [Check("Redis", "fail", f"{address} cannot be used ({why})", advice), _kernel()]


def no_cluster(address: str, why: str) -> list[Check]:
    """The checks where a server that a cluster's URL names is in none; `why` is Redis's answer."""
    seen = f"{address} does not say of which cluster it is ({why})"
    return [Check("Redis", "fail", seen, "name a server that is in no cluster by redis://HOST:PORT"), _kernel()]


def cluster_checks(
    nodes: Sequence[Node], served: int, address: str, embedded: bool = False, append: str = "auto"
) -> list[Check]:
    """All checks of a cluster of which a node has answered.

    Args:
        served: how many slots have a node.
        address, embedded, append: see `checks`.
    """
    facts = {node.name: node.found for node in nodes if isinstance(node.found, Facts)}
    facts = {name: _own(found) for name, found in facts.items()} if embedded else facts
    if not facts:
        return [_reached(nodes, address), _nodes(nodes, served), _kernel()]
    each = [_together({name: check(found) for name, found in facts.items()}) for check in _NODE_CHECKS]
    appended = _together({name: _appends(found, append) for name, found in facts.items()})
    return [_reached(nodes, address), *each, _clocks(facts), _nodes(nodes, served), appended, _kernel()]


def _own(facts: Facts) -> Facts:
    """As the facts of an embedded Valkey are to be read, whose user is its owner."""
    synced = _SYNCED_BY_KETCH if facts.appendfsync == "no" else facts.appendfsync
    return replace(facts, appendfsync=synced, rights=replace(facts.rights, excess=None))


def require_fit(checks: list[Check]) -> list[Check]:
    """The warnings among the checks, the first failed one raised as KetchError."""
    for check in checks:
        if check.verdict == "fail":
            raise KetchError(check.sentence())
    return [check for check in checks if check.verdict == "warn"]


def facts(keys: Keyspace, thorough: bool = False) -> Question[Facts]:
    """One look at the server, over a connection that nobody else uses (`rights.look`).

    Args:
        thorough: see `rights.look`.
    """
    info = parse_info((yield from call(None, "INFO")))
    clustered = info.get("cluster_enabled") == "1"
    before = time.time()
    seconds, microseconds = yield from call(None, "TIME")
    ours = (before + time.time()) / 2
    return Facts(
        info=info,
        save=(yield from _config("save")),
        appendfsync=(yield from _config("appendfsync")),
        clock_ahead=int(seconds) + int(microseconds) / 1e6 - ours,
        missing=(yield from _missing(clustered)),
        cluster=(yield from _cluster_info()) if clustered else None,
        by_module=(yield from appends.module_version()),
        rights=(yield from rights.look(keys, clustered, thorough)),
    )


def _config(name: str) -> Question[str | None]:
    """A setting, or None where CONFIG is forbidden, as managed servers do."""
    reply = yield from _reply("CONFIG", "GET", name)
    if isinstance(reply, hiredis.ReplyError) or len(reply) != 2:
        return None
    return str(reply[1].decode(errors="replace"))


def _missing(clustered: bool) -> Question[tuple[str, ...]]:
    names = _commands_for(clustered)
    reply = yield from _reply("COMMAND", "INFO", *names)
    if isinstance(reply, hiredis.ReplyError) or len(reply) != len(names):
        return ()  # no answer to go by
    return tuple(name for name, command in zip(names, reply, strict=True) if command is None)


def _commands_for(clustered: bool) -> tuple[str, ...]:
    return (*COMMANDS, *CLUSTER_COMMANDS) if clustered else COMMANDS


def _cluster_info() -> Question[dict[str, str]]:
    reply = yield from _reply("CLUSTER", "INFO")
    return {} if isinstance(reply, hiredis.ReplyError) else parse_info(reply)


def _reply(*words: str) -> Question[Any]:
    """A reply as Python objects, an error too."""
    (reply,) = yield (command(None, *words),)
    return parse(reply)


# -- the checks


def _version(facts: Facts) -> Check:
    kind, version = kind_and_version(facts.info)
    minimum = MIN_VALKEY if kind == "Valkey" else MIN_REDIS
    if _numbers(version) >= minimum:
        return Check("version", "ok", f"{kind} {version}")
    least = ".".join(map(str, minimum))
    return Check("version", "fail", f"{kind} {version or 'of unknown version'}", f"{kind} {least} or newer is needed")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _commands(facts: Facts) -> Check:
    if facts.missing:
        return Check("commands", "fail", f"{', '.join(facts.missing)} missing", "allow these commands")
    return Check("commands", "ok", f"all {len(_commands_for(facts.cluster is not None))} that Ketch uses")


def _rights(facts: Facts) -> Check:
    found = facts.rights
    who = f"user {found.user}" if found.user else "this user"
    lacking = [f"may not run {_some(found.commands)}"] if found.commands else []
    lacking += [f"may not use {_some(found.keys)}"] if found.keys else []
    if lacking:
        return Check("rights", "fail", f"{who} {' and '.join(lacking)}", _GIVE)
    if not found.excess:
        return Check("rights", "ok", f"{who} has what a broker needs" + _no_more(found))
    if found.user == "default":
        return Check("rights", "ok", f"{who}, whom nothing is forbidden", f"make a user for Ketch: {_RULE}")
    seen = f"{who} may do more than a broker needs: {_some(found.excess)}"
    return Check("rights", "warn", seen, _GIVE)


def _some(names: Sequence[str]) -> str:
    """The first of them, and how many there are beside."""
    left = len(names) - _SHOWN
    return ", ".join(names) if left <= 1 else f"{', '.join(names[:_SHOWN])} and {left} more"


def _no_more(found: Rights) -> str:
    if found.excess is None:
        return ""
    return ", and no more" if found.exact else "; nothing more was found (it may not ask ACL GETUSER)"


def _role(facts: Facts) -> Check:
    if facts.info.get("role", "master") == "master":
        return Check("role", "ok", "primary")
    primary = f"{facts.info.get('master_host', '?')}:{facts.info.get('master_port', '?')}"
    return Check("role", "fail", "a replica, where records cannot be kept", f"use its primary, {primary}")


def _persistence(facts: Facts) -> Check:
    advice = "set appendonly yes, or a crash of Redis loses acknowledged records"
    if facts.info.get("aof_enabled") == "1":
        synced = f", appendfsync {facts.appendfsync}" if facts.appendfsync else ""
        advice = _POSTPONED if facts.appendfsync == "everysec" else ""
        return Check("persistence", "ok", f"append-only file{synced}", advice)
    if facts.save:
        return Check("persistence", "warn", f"snapshots only (save {facts.save})", advice)
    if facts.save is None:
        return Check("persistence", "warn", "no append-only file, snapshots unknown (CONFIG is forbidden)", advice)
    return Check("persistence", "warn", "none: no append-only file, no snapshots", advice)


def _eviction(facts: Facts) -> Check:
    policy = facts.info.get("maxmemory_policy", "noeviction")
    limit = int(facts.info.get("maxmemory", 0))
    seen = f"{policy}, maxmemory {limit or 'unlimited'}"
    advice = "set maxmemory-policy noeviction"
    if policy == "noeviction":
        return Check("eviction", "ok", seen)
    if not limit:
        return Check("eviction", "ok", seen, f"{advice} before maxmemory")
    if policy.startswith("allkeys"):
        return Check("eviction", "fail", f"{seen}: Redis would drop whole partitions", advice)
    return Check("eviction", "warn", f"{seen}: Redis may drop keys that expire", advice)


def _clock(facts: Facts) -> Check:
    seen = f"Redis is {abs(facts.clock_ahead):.3f} s {'ahead' if facts.clock_ahead > 0 else 'behind'}"
    if abs(facts.clock_ahead) <= MAX_CLOCK_SECONDS:
        return Check("clock", "ok", seen)
    return Check("clock", "warn", seen, "synchronize both clocks (NTP): offsets and retention go by time")


def _cluster(facts: Facts) -> Check:
    if facts.cluster is None:
        return Check("cluster", "ok", "off")
    state, size = facts.cluster.get("cluster_state", "ok"), facts.cluster.get("cluster_size", "?")
    if state != "ok":
        return Check("cluster", "fail", f"on, state {state}", _UNSERVED)
    if size == "1":
        return Check("cluster", "ok", "on, one node with all slots")
    return Check("cluster", "fail", f"on, {size} nodes, of which this is one", "name it: redis+cluster://HOST:PORT")


def _appends(facts: Facts, append: str) -> Check:
    if append == "multi":
        return Check("appends", "ok", "by transactions, as the setting append says")
    if facts.by_module:
        return Check("appends", "ok", "by the append module")
    if facts.rights.module:
        verdict: Verdict = "fail" if append == "module" else "ok"
        seen = "by transactions: this user may not use the append module"
        return Check("appends", verdict, seen, "give it what `ketch redis user broker --module` prints")
    seen, advice = "by transactions: no append module", "load the file that `ketch module path` prints, for more speed"
    if append == "module":
        return Check(
            "appends", "fail", "no append module that Ketch knows", "load the file that `ketch module path` prints"
        )
    return Check("appends", "ok", seen, advice)


def _kernel() -> Check:
    if KERNEL == "cython":
        return Check("kernel", "ok", "cython")
    return Check("kernel", "warn", "plain Python, many times slower", "install gcc and python3-dev and reinstall Ketch")


_CHECKS: tuple[Callable[[Facts], Check], ...] = (
    _version,
    _commands,
    _rights,
    _role,
    _persistence,
    _eviction,
    _clock,
    _cluster,
)
_NODE_CHECKS = tuple(check for check in _CHECKS if check not in (_role, _clock, _cluster))


# -- the checks of all nodes of a cluster


def _together(found: Mapping[str, Check]) -> Check:
    """What a check has found on all nodes, the worst first; they are named where they differ."""
    nodes: dict[Check, list[str]] = {}
    for name, check in found.items():
        nodes.setdefault(check, []).append(name)
    worst, *others = sorted(nodes, key=lambda check: _SEVERITY.index(check.verdict))
    if not others:
        return worst
    seen = "; ".join(f"{', '.join(nodes[check])}: {check.seen}" for check in (worst, *others))
    advice = dict.fromkeys(check.advice for check in nodes if check.verdict == worst.verdict and check.advice)
    return replace(worst, seen=seen, advice="; ".join(advice))


def _reached(nodes: Sequence[Node], address: str) -> Check:
    """A replica that is gone takes nothing with it; a master takes its slots."""
    gone = [node for node in nodes if isinstance(node.found, str)]
    if not gone:
        return Check("Redis", "ok", f"{address} answers")
    verdict: Verdict = "fail" if any(node.of is None for node in gone) else "warn"
    seen = "; ".join(f"{node.name} cannot be used ({node.found})" for node in gone)
    return Check("Redis", verdict, seen, "start it, or check the address and the network in between")


def _clocks(facts: Mapping[str, Facts]) -> Check:
    """The clock that is farthest off."""
    name, farthest = max(facts.items(), key=lambda item: abs(item[1].clock_ahead))
    check = _clock(farthest)
    return check if check.verdict == "ok" else replace(check, seen=f"{name}: {check.seen}")


def _nodes(nodes: Sequence[Node], served: int) -> Check:
    masters = [node.name for node in nodes if node.of is None]
    seen = f"on, {_number(len(masters), 'master')}, {_number(len(nodes) - len(masters), 'replica')}"
    if served < SLOTS:
        return Check("cluster", "fail", f"{seen}; {SLOTS - served} of {SLOTS} slots have no node", _UNSERVED)
    ill = [node.name for node in nodes if isinstance(node.found, Facts) and not _state_ok(node.found)]
    if ill:
        return Check("cluster", "fail", f"{seen}; not ok for {', '.join(ill)}", _UNSERVED)
    alone = [name for name in masters if not any(node.of == name for node in nodes)]
    if alone and len(alone) < len(masters):
        return Check("cluster", "warn", f"{seen}; {', '.join(alone)} without a replica", "give each master a replica")
    return Check("cluster", "ok", seen)


def _state_ok(facts: Facts) -> bool:
    return (facts.cluster or {}).get("cluster_state", "ok") == "ok"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
