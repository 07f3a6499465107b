"""What each program may do in Redis: commands and keys of a least-privilege Redis user, one role for each program.

This table is the one source of it. `ketch redis user` prints a role as a rule for `ACL SETUSER`, `ketch doctor`
compares the broker's with what its user may do (`views.rights`), docs/security-redis.md shows them, and the tests run
brokers and Spark as these users. It does no I/O.

A script counts as the commands that it calls, and EVAL wants both reading and writing of each key that it is given. So
a key that a script reads cannot be given for reading alone. AUTH and HELLO need no right. No role has a channel: client
tracking is told over the connection itself (RESP3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ketch.store.keys import Keyspace

Access = Literal["rw", "r", "w"]

_CONNECTION = ("client|setname", "ping", "select")
_TRANSACTION = ("multi", "exec", "discard")
_ENTRIES = ("xrange", "xrevrange", "xlen", "xinfo|stream")
_APPENDING = ("eval", *("xadd", "xsetid", "exists", "type", "get", "set", "del"))

# What a broker cannot be without, on every server.
NEEDED = (
    *("xadd", "xrange", "xrevrange", "xlen", "xtrim", "xsetid", "xinfo|stream", "xinfo|groups", "xinfo|consumers"),
    *("xgroup|create", "xgroup|setid", "xgroup|destroy", "xgroup|createconsumer", "xgroup|delconsumer"),
    *("xreadgroup", "xack", "xpending", "xclaim"),
    *("multi", "exec", "eval", "client|setname", "client|tracking", "ping"),
    *("hset", "hsetnx", "hget", "hmget", "hgetall", "hkeys", "hvals", "hlen", "hexists", "hdel", "hscan", "hincrby"),
    *("sadd", "srem", "smembers", "sismember", "scard"),
    *("get", "set", "setnx", "incr", "del", "unlink", "rename", "pexpire", "persist", "scan", "type", "exists"),
    *("time", "memory|usage", "info", "wait"),
)
CLUSTER = ("asking", "cluster|info", "cluster|nodes", "cluster|slots")
_MASTER = ("role",)  # of a server that sentinels name
_ROUTING = ("asking", "cluster|info", "cluster|slots", *_MASTER, "command")  # as client libraries route
_LOOKING = ("discard", "command|info", "acl|whoami")  # of the checks before the start, and of `ketch doctor`
MODULE = ("ketch.version", "ketch.append", "ketch.txnappend")
NOBODYS = "ketch-doctor"  # stands for the names in keys that nobody has, which checks of rights ask about
_DISK = ("waitaof",)  # under the setting copies_on_disk; Redis before 7.2 does not know it


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of one kind.

    Attributes:
        name: what follows the keyspace and its colon, as a glob pattern; {stream} is the key of any partition's stream.
        access: what may be done with them.
    """

    name: str
    access: Access = "rw"

    def pattern(self, keys: Keyspace, topic: str | None = None) -> str:
        """The glob pattern for Redis's rules.

        Args:
            topic: of its keys alone, where the keys of this kind are a topic's.
        """
        if topic is None:
            return f"{keys.glob}:{self.name.replace('{stream}', '*')}"
        stream = f"{{{keys.glob}:stream:{topic}:*}}"
        mine = {"stream:*": f"stream:{topic}:*", "topic:*": f"topic:{topic}", "archive:*": f"archive:{topic}"}
        return f"{keys.glob}:{mine.get(self.name, self.name.replace('{stream}', stream))}"

    def sample(self, keys: Keyspace) -> str:
        """A key of this kind that nobody has."""
        stream = keys.stream(NOBODYS, 0).decode()
        return f"{keys.name}:{self.name.replace('{stream}', '{' + stream + '}').replace('*', NOBODYS)}"


_WHOLE = (Keys("*"),)


@dataclass(frozen=True, slots=True)
class Role:
    """One program, or a person with redis-cli.

    Attributes:
        name: as the command line has it.
        user: the name of its Redis user, unless another one is given.
        purpose: who it is for, as a phrase.
        commands: in the names of Redis's rules: lower case, a subcommand behind a bar.
        keys: those that it may use.
        module: further commands where the server has the append module.
        disk: further commands where copies count once they are on a disk.
    """

    name: str
    user: str
    purpose: str
    commands: tuple[str, ...]
    keys: tuple[Keys, ...]
    module: tuple[str, ...] = ()
    disk: tuple[str, ...] = ()

    def rules(
        self,
        keys: Keyspace,
        module: bool = False,
        on_disk: bool = False,
        redis6: bool = False,
        topic: str | None = None,
    ) -> list[str]:
        """The rules that give a user these rights and no other; password and state are not among them.

        Args:
            module: the server has the append module; without it Redis refuses the names of its commands.
            on_disk: the setting `copies_on_disk` is on.
            redis6: the server is Redis 6.2, which has no keys for reading or writing alone.
            topic: the user is confined to the keys of this topic, and those that belong to none.
        """
        names = [*self.commands, *(self.module if module else ()), *(self.disk if on_disk else ())]
        patterns = [_prefix(each, redis6) + each.pattern(keys, topic) for each in self.keys]
        return [*patterns, "-@all", *(f"+{name}" for name in names)]


def _prefix(kind: Keys, redis6: bool) -> str:
    return "~" if kind.access == "rw" or redis6 else f"%{kind.access.upper()}~"


BROKER = Role(
    "broker",
    "ketch",
    "ketch serve, and what a person asks of its Redis",
    (*NEEDED, *CLUSTER, *_MASTER, "select", *_LOOKING),
    _WHOLE,
    MODULE,
    _DISK,
)
SPARK = Role(
    "spark",
    "ketch-spark",
    "Spark's source and sink, and the archive job",
    (
        *_CONNECTION, *_TRANSACTION, *CLUSTER, *_MASTER, *_ENTRIES, *_APPENDING,
        *("hget", "hmget", "hgetall", "hset", "hsetnx", "hdel", "hlen", "hexists"),
        *("smembers", "sismember", "scard", "memory|usage"),
    ),
    (
        *(Keys(name) for name in ("stream:*", "topic:*", "archive:*")),
        *(Keys(f"{kind}:{{stream}}") for kind in ("producers", "transactions", "aborted")),
        Keys("fence:{stream}:*"),
        *(Keys(name, "r") for name in ("topics", "compaction:{stream}")),
    ),
    MODULE,
)  # fmt: skip
READER = Role(
    "reader",
    "ketch-reader",
    "a native reader, which reads the streams without a broker",
    (
        *_CONNECTION, *_TRANSACTION, *_ROUTING, *_ENTRIES, "xread", "xinfo|groups", "xinfo|consumers",
        *("xreadgroup", "xack", "xpending", "xclaim", "xautoclaim", "xgroup|create", "xgroup|createconsumer"),
        *("hget", "hmget", "hgetall", "hvals", "smembers", "sismember"),
    ),
    (
        Keys("stream:*"),  # XACK and XGROUP change the stream's groups; no command of the role changes its entries
        *(Keys(name, "r") for name in ("topics", "topic:*", "transactions:{stream}", "aborted:{stream}")),
    ),
)  # fmt: skip
WRITER = Role(
    "writer",
    "ketch-writer",
    "a native writer, which appends to the streams without a broker",
    (*_CONNECTION, *_TRANSACTION, *_ROUTING, "xadd"),
    (Keys("stream:*", "w"),),
)
SENTINEL = Role(
    "sentinel",
    "ketch",
    "brokers and Spark, on the sentinels themselves",
    ("client|setname", "ping", "role", "sentinel|master", "sentinel|sentinels", "sentinel|get-master-addr-by-name"),
    (),
)

ROLES = {role.name: role for role in (BROKER, SPARK, READER, WRITER, SENTINEL)}


def whole(commands: Iterable[str]) -> tuple[str, ...]:
    """The commands as COMMAND INFO names them, without subcommands, each once."""
    return tuple(dict.fromkeys(name.partition("|")[0].upper() for name in commands))


# What every server must have, and beside that every node of a cluster. HELLO needs no right.
COMMANDS = (*whole(NEEDED), "HELLO")
CLUSTER_COMMANDS = whole(CLUSTER)

_TOPICS = ("stream:*", "topic:*", "archive:*", "legacy07-brokers:*", "commit:*", "commit-term:*")
_STREAMS = ("producers", "transactions", "aborted", "compaction", "copies", "legacy07", "shares")
_OTHERS = ("group:*", "offsets:*", "pending-offsets:*", "transaction:*", "compacting:{stream}:*", "fence:{stream}:*")


def kinds(keys: Keyspace) -> list[Keys]:
    """The keys of a broker kind by kind: its user may have been given these rather than the whole keyspace."""
    single = (value for name in Keyspace.__slots__ if isinstance(value := getattr(keys, name), bytes))
    names = [key.decode().removeprefix(f"{keys.name}:") for key in single]
    return [Keys(name) for name in (*_TOPICS, *(f"{kind}:{{stream}}" for kind in _STREAMS), *_OTHERS, *names)]
