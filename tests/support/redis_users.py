"""Redis users of the roles in `ketch.store.rights`, and nothing else, for brokers and Spark in the tests.

With `--redis-user` every server that a test starts knows these users. Brokers connect as the role `broker`, and what
takes `KetchServer.redis_url` as the role that the option names. The tests' own connections stay the default user's.
Servers say in their ACL LOG what they have refused; at the end of each there must be nothing but what is expected.
"""

from __future__ import annotations

import redis

from ketch.store.keys import Keyspace
from ketch.store.rights import BROKER, ROLES, SPARK, Role

USERS = ("broker", "spark")
PASSWORD = "of-the-tests"
# Some tests run parts of a broker on keyspaces of their own.
KEYSPACES = tuple(
    Keyspace(name) for name in ("korvet", "creation", "machines", "stop", "half", "legacy", "groups", "transactions")
)
# Asked by the checks before the start: `ketch doctor` shows it where it may be seen.
EXPECTED = {"config|get", "config"}

# As the options --redis-user and --redis-server say, see tests/conftest.py.
chosen: str | None = None
binary = "valkey"


def options(module: bool, server: str) -> list[str]:
    """The users, as options on the command line of a server, one of `modules.NAMES`."""
    return [word for role in (BROKER, SPARK) for word in ("--user", *_user(role, module, server))]


def _user(role: Role, module: bool, server: str) -> list[str]:
    """A user's name and rules; the first keyspace is Ketch's default, the others are `NAME-*`."""
    rules = role.rules(KEYSPACES[0], module, on_disk=server == "valkey", redis6=server == "redis-6.2")
    others = [f"~{keys.name}-*" for keys in KEYSPACES[1:]] if role is BROKER else []
    return [role.user, "on", f">{PASSWORD}", "resetchannels", *others, *rules]


def as_user(url: str, role: str) -> str:
    """A URL of Redis for the user of a role; one that names a user, or sentinels, stays as it is."""
    scheme, mark, rest = url.partition("://")
    if "@" in rest or scheme not in ("redis", "redis+cluster"):
        return url
    return f"{scheme}{mark}{ROLES[role].user}:{PASSWORD}@{rest}"


def refused(client: redis.Redis) -> list[str]:
    """What the server has refused to users of these roles, as it says it: "xadd (toplevel) of ketch"."""
    entries = [{_text(name): _text(value) for name, value in each.items()} for each in client.acl_log()]
    return [
        f"{each['object']} ({each['reason']}, {each['context']}) of {each['username']}"
        for each in entries
        if each["username"] in (BROKER.user, SPARK.user) and each["object"] not in EXPECTED
    ]


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
