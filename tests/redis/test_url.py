"""Redis URLs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ketch.configs.settings import Settings
from ketch.errors import ConfigError
from ketch.redis.url import RedisAddress

BEGINNINGS = "A Redis URL begins with redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://."


@pytest.mark.parametrize(
    ("url", "address", "description"),
    [
        ("redis://", RedisAddress(), "redis://127.0.0.1:6379"),
        ("redis://h", RedisAddress("h"), "redis://h:6379"),
        ("redis://h:1/2", RedisAddress("h", 1, db=2), "redis://h:1/2"),
        ("redis://h:1/?db=2", RedisAddress("h", 1, db=2), "redis://h:1/2"),
        ("redis://[::1]:7", RedisAddress("::1", 7), "redis://[::1]:7"),
        ("redis://:secret@h", RedisAddress("h", password="secret"), "redis://h:6379"),
        ("redis://u%3A:p%40%2F@h", RedisAddress("h", username="u:", password="p@/"), "redis://h:6379"),
        ("unix:///a/b.sock", RedisAddress("", 0, "/a/b.sock"), "unix:///a/b.sock"),
        ("unix://u:p@/a%20b?db=3", RedisAddress("", 0, "/a b", 3, "u", "p"), "unix:///a%20b?db=3"),
    ],
)
def test_parse(url, address, description):
    parsed = RedisAddress.parse(url)
    assert parsed == address
    assert parsed.password == address.password
    assert parsed.describe() == description
    assert RedisAddress.parse(description) == replace(address, username=None, password=None)


def test_nodes_by_their_sockets():
    address = RedisAddress.parse("redis+cluster://u:p@127.0.0.1:7000,127.0.0.1:7001?sockets=7000:/a%252Cb,7001:/c:d")
    assert address.describe() == "redis+cluster://127.0.0.1:7000,127.0.0.1:7001"
    assert address.at("127.0.0.1", 7001) == RedisAddress("127.0.0.1", 7001, "/c:d", 0, "u", "p")
    assert address.at("127.0.0.1", 7000).path == "/a,b"
    assert address.at("127.0.0.1", 7002).path is None
    assert address.at("10.0.0.1", 7000).path is None


def test_tls():
    address = RedisAddress.parse("rediss://h:1")
    assert address.ssl is not None
    assert address.ssl.check_hostname
    assert address.describe() == "rediss://h:1"


def test_of_settings():
    assert RedisAddress.of(Settings.load(None, {"redis": "redis://h:5"})) == RedisAddress("h", 5)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", BEGINNINGS),
        ("localhost:6379", BEGINNINGS),
        ("http://h", BEGINNINGS),
        ("redis://h:x", "The Redis URL is not valid: Port could not be cast to integer value as 'x'."),
        ("redis://h:70000", "The Redis URL is not valid: Port out of range 0-65535."),
        ("redis://[h", "The Redis URL is not valid: Invalid IPv6 URL."),
        ("redis://h/x", "The database in the Redis URL should be a number: redis://host:port/0."),
        ("redis://h/-1", "The database in the Redis URL should be a number: redis://host:port/0."),
        ("redis://h?ssl=1", "The Redis URL has an unknown parameter ssl; only db is known."),
        (
            "redis+cluster://h?sockets=/a",
            "The sockets of a cluster are given as ?sockets=7000:/path,7001:/path.",
        ),
        ("unix://", "A unix:// Redis URL needs a path: unix:///run/redis.sock."),
    ],
)
def test_refused(url, sentence):
    with pytest.raises(ConfigError) as caught:
        RedisAddress.parse(url)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "url", ["redis://u:sec/ret@h", "redis://u:sec:ret@h:x", "ftp://u:secret@h", "redis://u:1/secret@h"]
)
def test_no_password_in_errors_or_descriptions(url):
    with pytest.raises(ConfigError) as caught:
        RedisAddress.parse(url)
    assert "sec" not in str(caught.value)
    assert "ret" not in str(caught.value)
    assert "secret" not in repr(RedisAddress.parse("redis://u:secret@h"))


def test_tls_files_are_for_tls(tmp_path):
    with pytest.raises(ConfigError, match="are for rediss:// URLs, not redis://"):
        RedisAddress.parse("redis://h", ca=tmp_path)


def test_missing_tls_files_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"redis_ca .*/no\.pem cannot be used: No such file or directory\."):
        RedisAddress.parse("rediss://h", ca=tmp_path / "no.pem")
    with pytest.raises(ConfigError, match=r"redis_cert .*/no\.pem cannot be used: No such file or directory\."):
        RedisAddress.parse("rediss://h", cert=tmp_path / "no.pem")
    with pytest.raises(ConfigError, match=r"redis_key needs redis_cert\."):
        RedisAddress.parse("rediss://h", key=tmp_path / "no.pem")


def test_file_that_is_no_certificate(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text("not PEM")
    with pytest.raises(ConfigError, match=r"redis_ca .* cannot be used"):
        RedisAddress.parse("rediss://h", ca=path)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_encrypted_key_does_not_ask(tmp_path: Path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = "openssl req -x509 -newkey rsa:2048 -subj /CN=k -passout pass:secret"
    subprocess.run([*command.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    with pytest.raises(ConfigError, match=r"redis_cert .* cannot be used"):
        RedisAddress.parse("rediss://h", cert=cert, key=key)
