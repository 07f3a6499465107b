"""Users with the rights of one role, on real servers: what they may do, and what is said of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError

from ketch.cli.examine import examine
from ketch.errors import KetchError
from ketch.redis.pipe import ask_once
from ketch.redis.url import RedisAddress
from ketch.store import rights
from ketch.store.keys import Keyspace
from ketch.store.rights import BROKER, CLUSTER, NEEDED, READER, ROLES, WRITER, Role
from ketch.views.health import Check, require_fit
from ketch.views.rights import Rights, look
from tests.support import redis_users
from tests.support.modules import NAMES, binary, with_module
from tests.support.redis_servers import RedisServer

KEYS = Keyspace("korvet")
GIVE = "give it what `ketch redis user broker` prints"
PASSWORD = "secret"
LIMIT = 20.0
INTRODUCTION = ("client|setname", "ping")  # without these there is no connection


@pytest.fixture(scope="module", params=NAMES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis_users, "chosen", None)  # this test makes users of its own
        server = RedisServer(binary(request.param), tmp_path_factory.mktemp("server"))
        server.kind = request.param  # type: ignore[attr-defined]
        yield server
        server.stop()


def user_of(server: RedisServer, *more: str, rules: list[str] | None = None, name: str = "ketch") -> RedisAddress:
    """A user with the broker's rights, or those of `rules`, and `more`."""
    given = BROKER.rules(KEYS, redis6=is_6(server)) if rules is None else rules
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", name, "reset", "on", f">{PASSWORD}", "resetchannels", *given, *more)
    return RedisAddress("127.0.0.1", server.port, username=name, password=PASSWORD)


def is_6(server: RedisServer) -> bool:
    return bool(server.kind == "redis-6.2")  # type: ignore[attr-defined]


def found(address: RedisAddress, thorough: bool = True) -> Rights:
    return asyncio.run(ask_once(address, LIMIT, look(KEYS, True, thorough)))


def check(address: RedisAddress, name: str = "rights", append: str = "auto", thorough: bool = True) -> Check:
    checks = asyncio.run(examine(address, LIMIT, append=append, thorough=thorough))
    return next(each for each in checks if each.name == name)


def test_the_role_is_enough_and_no_more(server: RedisServer) -> None:
    address = user_of(server)
    assert found(address) == Rights("ketch", excess=())
    told = check(address)
    assert (told.verdict, told.advice) == ("ok", "")
    assert told.seen == "user ketch has what a broker needs; nothing more was found (it may not ask ACL GETUSER)"


def test_nothing_is_executed(server: RedisServer) -> None:
    with server.client() as client:
        client.flushall()
        found(user_of(server, "~*", "+@all"))
        assert client.dbsize() == 0
        assert client.acl_whoami() == "default"


def test_each_command_that_is_missing_is_named(server: RedisServer) -> None:
    for name in (*NEEDED, *CLUSTER):
        address = user_of(server, rules=[rule for rule in BROKER.rules(KEYS) if rule != f"+{name}"])
        if name in INTRODUCTION:
            assert "NOPERM" in check(address, "Redis").seen
        else:
            assert found(address).commands == (name.replace("|", " ").upper(),)


@pytest.mark.parametrize("kind", rights.kinds(KEYS), ids=lambda kind: kind.name)
def test_each_kind_of_keys_that_is_missing_is_named(server: RedisServer, kind: rights.Keys) -> None:
    others = [f"~{each.pattern(KEYS)}" for each in rights.kinds(KEYS) if each != kind]
    named = found(user_of(server, "resetkeys", *others)).keys
    # Of these the pattern of another kind covers the sample, or is covered.
    assert named == (f"korvet:{kind.name.replace('{stream}', '*')}",)
    if not is_6(server):
        assert found(user_of(server, "resetkeys", *others, f"%R~{kind.pattern(KEYS)}")).keys == (
            f"{named[0]} (writing)",
        )


def test_no_keys_and_other_keys(server: RedisServer) -> None:
    assert found(user_of(server, "resetkeys")).keys == ("korvet:*",)
    told = check(user_of(server, "resetkeys", "~other:*"))
    assert (told.verdict, told.seen, told.advice) == ("fail", "user ketch may not use korvet:*", GIVE)


@pytest.mark.parametrize(
    ("more", "excess"),
    [
        (["+flushall"], ["+flushall"]),
        (["~*"], ["~*"]),
        (["~shop:*", "+keys"], ["+keys", "~shop:*"]),
        (["&news"], ["&news"]),
        (["nopass"], ["nopass"]),
        (["+@all", "~*"], ["+@all", "~*"]),
    ],
)
def test_what_is_too_much_where_it_may_be_seen(server: RedisServer, more: list[str], excess: list[str]) -> None:
    told = found(user_of(server, "+acl|getuser", "+acl|cat", *more))
    assert told.exact
    assert told.excess is not None
    asking = {"+acl|getuser", "+acl|cat", "+acl"}
    assert [rule for rule in told.excess if rule not in asking] == excess


def test_what_is_too_much_where_it_may_not_be_seen(server: RedisServer) -> None:
    told = check(user_of(server, "~*", "+keys", "+config|get"))
    assert told.verdict == "warn"
    assert told.seen == "user ketch may do more than a broker needs: CONFIG GET, KEYS, keys beside korvet:*"
    assert told.advice == GIVE


def test_the_default_user(server: RedisServer) -> None:
    told = check(RedisAddress("127.0.0.1", server.port))
    assert (told.verdict, told.seen) == ("ok", "user default, whom nothing is forbidden")
    assert told.advice == "make a user for Ketch: `ketch redis user broker`"


def test_the_start_of_a_broker_looks_for_what_is_missing_alone(server: RedisServer) -> None:
    assert found(user_of(server, "~*", "+@all"), thorough=False) == Rights("ketch")
    with server.client() as client:
        client.execute_command("ACL", "LOG", "RESET")
        address = user_of(server)
        assert found(address, thorough=False) == Rights("ketch")
        assert client.execute_command("ACL", "LOG") == []
        checks = asyncio.run(examine(user_of(server, rules=["~korvet:*", "+@all", "-xadd", "-xtrim"]), LIMIT))
    with pytest.raises(KetchError) as caught:
        require_fit(checks)
    assert str(caught.value) == f"rights: user ketch may not run XADD, XTRIM; {GIVE}."


@pytest.mark.parametrize("gone", ["multi", "info", "acl|whoami", "discard"])
def test_a_user_that_may_hardly_look(server: RedisServer, gone: str) -> None:
    address = user_of(server, rules=[rule for rule in BROKER.rules(KEYS) if rule != f"+{gone}"])
    if gone == "info":
        told = check(address, "Redis")
        assert "NOPERM" in told.seen
        assert told.advice == "give the user what `ketch redis user broker` prints"
        return
    told = check(address)
    assert told.verdict == ("fail" if gone == "multi" else "ok")
    if gone == "multi":
        assert told.seen == "user ketch may not run MULTI"
    if gone == "acl|whoami":
        assert told.seen.startswith("this user has what a broker needs")


def test_a_user_that_may_not_use_the_module(tmp_path: Path) -> None:
    server = with_module("valkey", tmp_path / "server")
    server.kind = "valkey"  # type: ignore[attr-defined]
    try:
        address = user_of(server)
        assert check(address).verdict == "ok"
        told = check(address, "appends")
        assert (told.verdict, told.seen) == ("ok", "by transactions: this user may not use the append module")
        assert told.advice == "give it what `ketch redis user broker --module` prints"
        assert check(address, "appends", append="module").verdict == "fail"
        address = user_of(server, rules=BROKER.rules(KEYS, module=True))
        assert check(address, "appends").seen == "by the append module"
        assert check(address).verdict == "ok"
    finally:
        server.stop()


def as_role(server: RedisServer, role: Role, topic: str | None = None) -> redis.Redis:
    """A redis-py client with the rights of a role."""
    user_of(server, rules=role.rules(KEYS, redis6=is_6(server), topic=topic), name=role.user)
    return redis.Redis(port=server.port, username=role.user, password=PASSWORD)


@pytest.fixture
def log(server: RedisServer) -> Iterator[redis.Redis]:
    """The default user's client of a server that has two topics with records."""
    with server.client() as client:
        client.flushall()
        for topic in ("orders", "refunds"):
            client.sadd("korvet:topics", topic)
            client.hset(f"korvet:topic:{topic}", mapping={"offsetSequenceBits": "10", "partitions": "1"})
            for n in range(3):
                client.xadd(f"korvet:stream:{topic}:0", {"value": n})
        yield client


ORDERS = "korvet:stream:orders:0"
REFUSED: dict[str, list[Callable[[redis.Redis], object]]] = {
    "reader": [
        lambda client: client.xadd(ORDERS, {"value": "x"}),
        lambda client: client.xdel(ORDERS, "0-1"),
        lambda client: client.xtrim(ORDERS, 0),
        lambda client: client.delete(ORDERS),
        lambda client: client.xgroup_destroy(ORDERS, "g"),
        lambda client: client.hset("korvet:topic:orders", "x", "y"),
        lambda client: client.get("korvet:cluster-id"),
        lambda client: client.get("other"),
        lambda client: client.keys(),
        lambda client: client.config_get("*"),
    ],
    "writer": [
        lambda client: client.xrange(ORDERS),
        lambda client: client.xread({ORDERS: "0"}),
        lambda client: client.xtrim(ORDERS, 0),
        lambda client: client.delete(ORDERS),
        lambda client: client.xadd("korvet:brokers", {"value": "x"}),
        lambda client: client.xadd("other", {"value": "x"}),
        lambda client: client.hset("korvet:topic:orders", "x", "y"),
        lambda client: client.eval("return 1", 0),
    ],
}


def test_a_native_reader(server: RedisServer, log: redis.Redis) -> None:
    with as_role(server, READER) as reader:
        assert len(reader.xrange(ORDERS)) == 3
        assert len(reader.xread({ORDERS: "0"})[0][1]) == 3
        assert reader.hgetall("korvet:topic:orders")[b"partitions"] == b"1"
        assert reader.smembers("korvet:topics") == {b"orders", b"refunds"}
        reader.xgroup_create(ORDERS, "mine", "0")
        entries = reader.xreadgroup("mine", "me", {ORDERS: ">"})[0][1]
        assert reader.xack(ORDERS, "mine", *(entry for entry, _ in entries)) == 3
        with reader.pipeline(transaction=True) as pipe:
            pipe.xrange(ORDERS).hvals(f"korvet:transactions:{{{ORDERS}}}").xrange(f"korvet:aborted:{{{ORDERS}}}")
            assert [len(reply) for reply in pipe.execute()] == [3, 0, 0]
        for refused in REFUSED["reader"]:
            with pytest.raises(NoPermissionError):
                refused(reader)
    assert log.xlen(ORDERS) == 3


def test_a_native_writer(server: RedisServer, log: redis.Redis) -> None:
    with as_role(server, WRITER) as writer:
        writer.xadd(ORDERS, {"value": "x"})
        with writer.pipeline(transaction=True) as pipe:
            assert len(pipe.xadd(ORDERS, {"value": "y"}).xadd(ORDERS, {"value": "z"}).execute()) == 2
        for refused in REFUSED["writer"]:
            with pytest.raises(NoPermissionError):
                refused(writer)
    assert log.xlen(ORDERS) == 6


def test_users_of_one_topic(server: RedisServer, log: redis.Redis) -> None:
    with as_role(server, READER, "orders") as reader, as_role(server, WRITER, "orders") as writer:
        assert len(reader.xrange(ORDERS)) == 3
        assert reader.xrange(f"korvet:aborted:{{{ORDERS}}}") == []
        writer.xadd(ORDERS, {"value": "x"})
        for refused in (
            lambda: reader.xrange("korvet:stream:refunds:0"),
            lambda: reader.hgetall("korvet:topic:refunds"),
            lambda: reader.xrange("korvet:aborted:{korvet:stream:refunds:0}"),
            lambda: writer.xadd("korvet:stream:refunds:0", {"value": "x"}),
        ):
            with pytest.raises(NoPermissionError):
                refused()


def test_servers_know_every_role(server: RedisServer) -> None:
    for role in ROLES.values():
        if role.name != "sentinel":  # whose commands sentinels alone have
            user_of(server, rules=role.rules(KEYS, redis6=is_6(server)), name="any")


def test_a_keyspace_with_signs_of_patterns(server: RedisServer) -> None:
    keys = Keyspace("a*b[c]-d?")
    address = user_of(server, rules=BROKER.rules(keys))
    assert asyncio.run(ask_once(address, LIMIT, look(keys, False, True))) == Rights("ketch", excess=())
    assert asyncio.run(ask_once(address, LIMIT, look(Keyspace("axb[c]-d?"), False, True))).keys == ("axb[c]-d?:*",)
