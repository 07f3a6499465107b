"""URLs of a Redis Cluster and of sentinels."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from ketch.errors import ConfigError
from ketch.redis.server import Server
from ketch.redis.url import RedisAddress


def cluster(host: str, port: int, *others: tuple[str, int], **given: str) -> RedisAddress:
    return RedisAddress(host, port, kind="cluster", others=others, **given)  # type: ignore[arg-type]


def sentinels(host: str, port: int, *others: tuple[str, int], db: int = 0, **given: str) -> RedisAddress:
    return replace(cluster(host, port, *others, **given), kind="sentinel", master="m-1.a_b", db=db)


@pytest.mark.parametrize(
    ("url", "address", "description"),
    [
        ("redis+cluster://a:1", cluster("a", 1), "redis+cluster://a:1"),
        ("redis+cluster://a:1,b,c:3", cluster("a", 1, ("b", 6379), ("c", 3)), "redis+cluster://a:1,b:6379,c:3"),
        ("redis+cluster://[::1]:1,h,[::2]", cluster("::1", 1, ("h", 6379), ("::2", 6379)),
         "redis+cluster://[::1]:1,h:6379,[::2]:6379"),
        ("redis+cluster://h,[::2]:7", cluster("h", 6379, ("::2", 7)), "redis+cluster://h:6379,[::2]:7"),
        ("redis+cluster://u:p%40%2C,@a:1,b:2/0", cluster("a", 1, ("b", 2), username="u", password="p@,,"),
         "redis+cluster://a:1,b:2"),
        ("redis+sentinel://s/m-1.a_b", sentinels("s", 26379), "redis+sentinel://s:26379/m-1.a_b"),
        ("redis+sentinel://:p@s:1,t/m-1.a_b/2", sentinels("s", 1, ("t", 26379), db=2, password="p"),
         "redis+sentinel://s:1,t:26379/m-1.a_b/2"),
        ("redis+sentinel://s:1/m-1.a_b?db=2&sentinel_username=u%26&sentinel_password=a+b%25",
         sentinels("s", 1, db=2, sentinel_username="u&", sentinel_password="a+b%"), "redis+sentinel://s:1/m-1.a_b/2"),
    ],
)  # fmt: skip
def test_parse(url: str, address: RedisAddress, description: str) -> None:
    parsed = RedisAddress.parse(url)
    assert parsed == address
    assert (parsed.password, parsed.sentinel_password) == (address.password, address.sentinel_password)
    assert parsed.describe() == description
    stranger = replace(address, username=None, password=None, sentinel_username=None, sentinel_password=None)
    assert RedisAddress.parse(description) == stranger


@pytest.mark.parametrize("url", ["rediss+cluster://a:1,b:2", "rediss+sentinel://a:1,b:2/m"])
def test_tls_is_that_of_every_node(url: str) -> None:
    address = RedisAddress.parse(url)
    assert address.ssl is not None
    assert address.describe() == url
    assert address.at("c", 3).ssl is address.sentinel("s", 4).ssl is address.ssl


def test_one_node() -> None:
    address = RedisAddress.parse("redis+cluster://u:p@a:1,b:2")
    assert address.seeds == (("a", 1), ("b", 2))
    assert address.at("c", 3) == RedisAddress("c", 3, username="u", password="p")
    assert address.at("c", 3).password == "p"
    assert RedisAddress.parse("redis://u:p@a:1/5").seeds == (("a", 1),)


def test_master_and_sentinel() -> None:
    address = RedisAddress.parse("redis+sentinel://u:p@s,t/m/5?sentinel_username=v&sentinel_password=q")
    assert address.at("c", 3) == RedisAddress("c", 3, db=5, username="u", password="p")
    assert address.sentinel("t", 4) == RedisAddress("t", 4, username="v", password="q")
    assert address.sentinel("t", 4).password == "q"


def test_a_server_value_travels() -> None:
    server = pickle.loads(pickle.dumps(Server("redis+sentinel://s:1,t:2/m")))
    assert server.address().describe() == "redis+sentinel://s:1,t:2/m"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis://a,b", "A Redis URL with several hosts begins with redis+cluster:// or redis+sentinel://."),
        ("rediss://a:1,b:2/0", "A Redis URL with several hosts begins with redis+cluster:// or redis+sentinel://."),
        ("redis+cluster://a:1,", "The Redis URL has a comma without a host beside it."),
        ("redis+cluster://,a:1", "The Redis URL has a comma without a host beside it."),
        ("redis+cluster://a:1,:2", "The Redis URL has a comma without a host beside it."),
        ("redis+cluster://a:1,b:x", "The Redis URL is not valid: Port could not be cast to integer value as 'x'."),
        ("redis+cluster://a:1,b:70000", "The Redis URL is not valid: Port out of range 0-65535."),
        ("redis+cluster://a:1/3", "A Redis Cluster has database 0 only, not 3."),
        ("redis+cluster://a:1?db=1", "A Redis Cluster has database 0 only, not 1."),
        ("redis+cluster://a:1/x", "The database in the Redis URL should be a number: redis://host:port/0."),
        ("redis+cluster://a?sentinel_username=u",
         "The Redis URL has an unknown parameter sentinel_username; only db and sockets are known."),
        ("redis+sentinel://a", "A Sentinel URL needs the name of the master: redis+sentinel://host:port/mymaster."),
        ("rediss+sentinel://a/x@y",
         "A Sentinel URL needs the name of the master: rediss+sentinel://host:port/mymaster."),
        ("redis+sentinel://a/m/x",
         "The database in the Redis URL should be a number: redis+sentinel://host:port/mymaster/0."),
        ("redis+sentinel://a/m?x=1",
         "The Redis URL has an unknown parameter x; only db, sentinel_username and sentinel_password are known."),
        ("redis+http://a",
         "A Redis URL begins with redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://."),
    ],
)  # fmt: skip
def test_refused(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RedisAddress.parse(url)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://u:sec/ret@h,g",
        "redis+cluster://u:1,sec/ret@h",
        "redis+cluster://u:1/secret@h",
        "redis+sentinel://u:1/secret@h/m",
        "redis+sentinel://u:1,sec:2/ret@h/m",
        "redis+sentinel://h/m?sentinel_password=sec&ret=1",
        "redis+sentinel://h:x/m?sentinel_password=secret",
    ],
)
def test_no_password_in_errors(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RedisAddress.parse(url)
    assert "sec" not in str(caught.value)
    assert "ret" not in str(caught.value)


def test_no_password_in_descriptions() -> None:
    address = RedisAddress.parse("redis+sentinel://u:secret@h,g/m?sentinel_username=v&sentinel_password=secret")
    assert "secret" not in repr(address)
    assert "secret" not in address.describe()
    assert "secret" not in repr(address.sentinel("h", 1))


def test_tls_files_are_for_tls(tmp_path: object) -> None:
    with pytest.raises(ConfigError, match=r"are for rediss:// URLs, not redis\+cluster://"):
        RedisAddress.parse("redis+cluster://h", ca=tmp_path)  # type: ignore[arg-type]
