"""What the user of a connection may do in Redis: what a broker lacks of it, and what is more than a broker needs.

Redis decides about a command of a transaction when it is queued, not at EXEC. So each command of the table
`store.rights` is queued once, with keys that nobody has, and the transaction is discarded: nothing is executed. That
works with every version, and takes no right to look at rights. (ACL GETUSER and ACL DRYRUN would show a broker's user
the password hashes and rights of all others.)

What is too much is read from ACL GETUSER where the user may ask that. Where it may not, a few telling commands and a
key outside the keyspace are queued instead. It is a question about one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketch.redis.question import Command, Question, command
from ketch.redis.resp import parse
from ketch.store import rights
from ketch.store.keys import Keyspace

_KEY = "{}"  # stands for the key
# A call of each command, with as many words as it needs. EXEC would end the transaction: it goes before MULTI.
_CALLS = (
    *("client setname x", "client tracking on", "ping", "eval return 1 {}", "info", "time", "wait 0 0", "scan 0"),
    *("xadd {} * f v", "xrange {} - +", "xrevrange {} + -", "xlen {}", "xtrim {} maxlen 0", "xsetid {} 0-1"),
    *("xinfo stream {}", "xinfo groups {}", "xinfo consumers {} g", "xgroup create {} g $", "xgroup setid {} g $"),
    *("xgroup destroy {} g", "xgroup createconsumer {} g c", "xgroup delconsumer {} g c"),
    *("xreadgroup group g c streams {} >", "xack {} g 0-1", "xpending {} g", "xclaim {} g c 0 0-1"),
    *("hset {} f v", "hsetnx {} f v", "hget {} f", "hmget {} f", "hgetall {}", "hkeys {}", "hvals {}", "hlen {}"),
    *("hexists {} f", "hdel {} f", "hscan {} 0", "hincrby {} f 1"),
    *("sadd {} m", "srem {} m", "smembers {}", "sismember {} m", "scard {}"),
    *("get {}", "set {} v", "setnx {} v", "incr {}", "del {}", "unlink {}", "rename {} {}", "pexpire {} 1"),
    *("persist {}", "type {}", "exists {}", "memory usage {}"),
)
_CLUSTER_CALLS = ("asking", "cluster info", "cluster nodes", "cluster slots")
_READ, _WRITE = "hgetall {}", "del {}"
# What tells of a user with too many rights where it may not be looked at.
_TELLING = {
    "CONFIG GET": "config get maxmemory",
    "KEYS": "keys ketch-doctor",
    "ACL LIST": "acl list",
    "CLIENT LIST": "client list",
    "SLOWLOG LEN": "slowlog len",
}


@dataclass(frozen=True, slots=True)
class Rights:
    """What was found of a connection's user.

    Attributes:
        user: its name; empty where it may not be asked for.
        commands: those that a broker needs and the user may not run: "XINFO STREAM".
        keys: those that a broker needs and the user may not use: "korvet:groups (writing)".
        module: the server has the append module, and the user may not append by it.
        excess: what the user may do and no broker needs, as Redis writes rules; None where nobody has looked.
        exact: `excess` is all there is, for ACL GETUSER could be asked.
    """

    user: str = ""
    commands: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    module: bool = False
    excess: tuple[str, ...] | None = None
    exact: bool = False


def look(keys: Keyspace, clustered: bool, thorough: bool) -> Question[Rights]:
    """The rights of this connection's user, for a connection that nobody else uses: a transaction is open on it from
    round to round. Where the user may not run DISCARD, the connection is of no use after this.

    Args:
        thorough: whether to look for what is too much. Redis notes each refusal in ACL LOG; this provokes some.
    """
    whoami, ended, began = yield [command(None, *words.split()) for words in ("acl whoami", "exec", "multi")]
    name = parse(whoami)
    user = name.decode(errors="replace") if isinstance(name, bytes) else ""
    closed = [word for word, reply in (("EXEC", ended), ("MULTI", began)) if _no_command(reply)]
    if not began.startswith(b"+"):
        return Rights(user, commands=tuple(closed or ["MULTI"]))
    stream = keys.stream(rights.NOBODYS, 0).decode()
    calls = (*_CALLS, *_CLUSTER_CALLS) if clustered else _CALLS
    replies = yield [_call(each, stream) for each in (*calls, *map(_spaced, rights.MODULE))]
    closed += [_named(each) for each, reply in zip(calls, replies, strict=False) if _no_command(reply)]
    module = any(map(_no_command, replies[len(calls) :]))
    unusable = yield from _unusable(keys)
    telling = (yield from _telling(keys)) if thorough else None
    yield (command(None, "discard"),)
    excess, exact = (yield from _excess(keys, user, telling)) if telling is not None else (None, False)
    return Rights(user, tuple(closed), tuple(unusable), module, excess, exact)


def _unusable(keys: Keyspace) -> Question[list[str]]:
    kinds = rights.kinds(keys)
    replies = yield [_call(words, kind.sample(keys)) for kind in kinds for words in (_READ, _WRITE)]
    closed = [(_no_key(read), _no_key(write)) for read, write in zip(replies[::2], replies[1::2], strict=True)]
    if all(read and write for read, write in closed):
        return [f"{keys.name}:*"]
    how = {(True, True): "", (True, False): " (reading)", (False, True): " (writing)"}
    return [_shown(kind, keys) + how[each] for kind, each in zip(kinds, closed, strict=True) if any(each)]


def _shown(kind: rights.Keys, keys: Keyspace) -> str:
    return f"{keys.name}:{kind.name.replace('{stream}', '*')}"


def _telling(keys: Keyspace) -> Question[tuple[str, ...]]:
    """Those of a few things that no broker needs, and that the user may do; in the transaction."""
    *replies, outside = yield [*(_call(each, "") for each in _TELLING.values()), _call("get {}", rights.NOBODYS)]
    found = [name for name, reply in zip(_TELLING, replies, strict=True) if not _no_command(reply)]
    return (*found, *(() if outside.startswith(b"-NOPERM") else (f"keys beside {keys.name}:*",)))


def _excess(keys: Keyspace, user: str, telling: tuple[str, ...]) -> Question[tuple[tuple[str, ...], bool]]:
    """What is too much, and whether that is all; `telling` where the user may not look."""
    (reply,) = yield (command(None, "acl", "getuser", user),)
    told = _fields(parse(reply))
    if not told:
        return telling, False
    commands = yield from _beyond_commands(_words(told["commands"]))
    return (*commands, *_beyond(told, keys)), True


def _beyond_commands(rules: Sequence[str]) -> Question[list[str]]:
    """The commands that these rules allow, of those that no broker needs; `+@all` for all."""
    # Redis before 7.2 shows other rules than were given, with categories and exceptions that come to the same.
    names = list(dict.fromkeys(rule[2:] for rule in rules if rule[1:2] == "@" and rule[2:] != "all"))
    replies = (yield [command(None, "acl", "cat", name) for name in names]) if names else []
    members = {f"@{name}": _members(parse(reply)) for name, reply in zip(names, replies, strict=True)}
    allowed: dict[str, None] = {}
    for sign, name in ((rule[0], rule[1:]) for rule in rules):
        if name == "@all":
            allowed = {name: None} if sign == "+" else {}
        elif sign == "+":
            allowed |= dict.fromkeys(members.get(name) or (name,))
        else:
            gone = members.get(name) or (name,)
            allowed = {each: None for each in allowed if each not in gone and each.partition("|")[0] not in gone}
    broker = rights.BROKER
    given = (*broker.commands, *broker.module, *broker.disk)
    needed = {name for whole in given for name in (whole, _container(whole))}
    return [f"+{name}" for name in allowed if name not in needed]


def _members(reply: Any) -> list[str]:
    """The commands of a category; none where the user may not ask for them."""
    return [name.decode().lower() for name in reply] if isinstance(reply, list) else []


def _container(name: str) -> str:
    return name.partition("|")[0]


def _beyond(told: Mapping[str, Any], keys: Keyspace) -> Iterable[str]:
    """The rules of a user beside those about commands, as ACL GETUSER shows them, that no broker needs."""
    for rule in _words(told["keys"]):
        before, mark, pattern = rule.rpartition("~")  # Redis 6.2 shows the pattern alone
        if not pattern.startswith(f"{keys.glob}:"):
            yield f"{before}{mark or '~'}{pattern}"
    for rule in _words(told.get("channels", [])):
        yield f"&{rule.removeprefix('&')}"
    yield from (f"({' '.join(_words(each))})" for each in told.get("selectors", []))
    yield from (flag for flag in _words(told["flags"]) if flag == "nopass")


def _fields(reply: Any) -> dict[str, Any]:
    """A reply of names and values; empty for an error, or where there is no such user."""
    if not isinstance(reply, list):
        return {}
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _words(value: Any) -> list[str]:
    """Rules in one string, or in a list."""
    if isinstance(value, bytes):
        return value.decode(errors="replace").split()
    return [word for each in value for word in _words(each)]


def _call(words: str, key: str) -> Command:
    if words.startswith("eval "):
        return command(None, "eval", "return 1", 1, key)
    return command(None, *(key if word == _KEY else word for word in words.split()))


def _spaced(name: str) -> str:
    return name.replace("|", " ")


def _named(words: str) -> str:
    """The command of a call: "XINFO STREAM", "XADD"."""
    first, second, *_ = [*words.split(), ""]
    return (f"{first} {second}" if f"{first}|{second}" in rights.BROKER.commands else first).upper()


def _no_command(reply: bytes) -> bool:
    """Whether a user may not run the command. EXEC says so as one that has aborted a transaction."""
    return reply.startswith((b"-NOPERM", b"-EXECABORT")) and b"permissions to run the " in reply


def _no_key(reply: bytes) -> bool:
    """Whether a user may run the command, but not with this key."""
    return reply.startswith(b"-NOPERM") and not _no_command(reply)
