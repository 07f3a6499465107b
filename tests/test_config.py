"""Settings: precedence, what is refused and how, and the sample file."""

from __future__ import annotations

import re
import socket
import tomllib
from pathlib import Path

import pytest

from ketch.configs.broker_table import BROKER_CONFIGS
from ketch.configs.refusal import is_secret
from ketch.configs.settings import Settings
from ketch.errors import ConfigError

SAMPLE = Path(__file__).parent.parent / "ketch.toml"


@pytest.fixture
def toml(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "k.toml"
        path.write_text(text)
        return path

    return write


def refused(config: Path | None = None, **flags: object) -> str:
    with pytest.raises(ConfigError) as caught:
        Settings.load(config, flags)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_flag_beats_environment_beats_file_beats_default(toml, monkeypatch):
    file = toml("port = 1\nnode_id = 2\nkeyspace = 'file'\n")
    monkeypatch.setenv("KETCH_PORT", "3")
    monkeypatch.setenv("KETCH_NODE_ID", "4")
    settings = Settings.load(file, {"port": 5})
    assert (settings.port, settings.node_id, settings.keyspace, settings.fsync) == (5, 4, "file", "everysec")


def test_empty_variable_counts_as_not_set(monkeypatch):
    monkeypatch.setenv("KETCH_HTTP_PORT", "")
    assert Settings.load().http_port is None


def test_variables_of_other_programs_are_no_settings(monkeypatch):
    monkeypatch.setenv("KETCH_KERNEL", "python")
    assert Settings.load().port == 9092


def test_file_sets_every_kind(toml):
    settings = Settings.load(toml("data_dir = 'd'\nauto_create_topics = false\nhttp_port = 0\nredis = 'redis://h'\n"))
    assert settings.data_dir == Path("d")
    assert settings.auto_create_topics is False
    assert settings.http_port == 0
    assert settings.redis == "redis://h"


def test_unknown_key_is_named_with_the_nearest(toml):
    assert re.search(r"k\.toml: unknown setting prot \(did you mean port\?\)", refused(toml("prot = 1\n")))


def test_unknown_key_near_nothing_lists_the_settings(toml):
    assert "the settings are host, port, " in refused(toml("zzz = 1\n"))


def test_missing_file_is_named(tmp_path):
    assert refused(tmp_path / "no.toml") == f"{tmp_path}/no.toml cannot be read: No such file or directory."


@pytest.mark.parametrize("text", ["port = ", "\x00", "a = 1\na = 2"])
def test_damaged_file_is_named(toml, text):
    assert "k.toml is not TOML: " in refused(toml(text))


def test_file_that_is_not_text(tmp_path):
    path = tmp_path / "k.toml"
    path.write_bytes(b"\xff\xfe")
    assert "k.toml is not TOML: " in refused(path)


def test_bad_value_names_where_it_stands(toml, monkeypatch):
    whole = "it should be a whole number"
    assert refused(port=65536) == f"--port = 65536 is not allowed: {whole} from 0 to 65535."
    assert f"k.toml: port = 'x' is not allowed: {whole} from 0 to 65535." in refused(toml("port = 'x'\n"))
    assert refused(http_port="x") == f"--http-port = 'x' is not allowed: {whole} from 0 to 65535."
    assert refused(retention_ms="7d") == f"--retention-ms = '7d' is not allowed: {whole} of at least -1."
    assert refused(auto_create_topics="x") == "--auto-create-topics = 'x' is not allowed: it should be true or false."
    monkeypatch.setenv("KETCH_FSYNC", "maybe")
    assert refused() == "KETCH_FSYNC = 'maybe' is not allowed: it should be 'always', 'everysec' or 'no'."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", -1),
        ("advertised_port", 65536),
        ("keyspace", ""),
        ("keyspace", "a b"),
        ("keyspace", "a{b}"),
        ("keyspace", "a\n"),
        ("default_partitions", 0),
        ("default_offset_sequence_bits", 9),
        ("default_offset_sequence_bits", 17),
        ("default_offset_ids", "random"),
        ("default_compression_type", "brotli"),
        ("retention_ms", -2),
        ("fetch_max_bytes", 1023),
        ("max_connections", 0),
        ("log_level", "loud"),
        ("auto_create_topics", "perhaps"),
    ],
)
def test_refused(name, value):
    assert refused(**{name: value}).startswith(f"--{name.replace('_', '-')} = {value!r} is not allowed: it should be ")


def test_largest_request_must_get_through():
    message = refused(queued_max_bytes=1_000_000)
    assert "queued_max_bytes = 1000000 should be at least socket_request_max_bytes (104857600)" in message


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"group_min_session_timeout_ms": 7000, "group_max_session_timeout_ms": 6999},
            "group_min_session_timeout_ms = 7000 should be at most group_max_session_timeout_ms (6999)",
        ),
        (
            {"broker_session_timeout_ms": 1000},
            "broker_heartbeat_interval_ms = 2000 should be at most broker_session_timeout_ms (1000)",
        ),
        ({"port": 65534, "workers": 3}, "3 workers from port 65534 on would need port 65536"),
    ],
)
def test_settings_agree(given, told):
    assert told in refused(**given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, ("127.0.0.1", 5)),
        ({"host": "10.0.0.1"}, ("10.0.0.1", 5)),
        ({"host": "0.0.0.0"}, (socket.gethostname(), 5)),
        ({"host": "::"}, (socket.gethostname(), 5)),
        ({"host": "0.0.0.0", "advertised_host": "kafka.example", "advertised_port": 7}, ("kafka.example", 7)),
    ],
)
def test_advertised(given, told):
    assert Settings.load(None, given).advertised(5) == told


def test_describe_configs_shows_no_secret() -> None:
    hidden = {config.key.setting for config in BROKER_CONFIGS.values() if config.key.type == "password"}
    secrets = {name for name, field in Settings.model_fields.items() if is_secret(field)}
    assert secrets
    assert secrets <= hidden


def test_sample_documents_every_setting_with_its_default():
    found = re.findall(r"^#([a-z_]+) =(.*)$", SAMPLE.read_text(), re.MULTILINE)
    sample = {name: tomllib.loads(f"v ={text}")["v"] if text.strip() else None for name, text in found}
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    assert len(found) == len(sample)
    assert sample == {name: str(value) if isinstance(value, Path) else value for name, value in defaults.items()}


def test_sample_is_toml_and_sets_nothing():
    assert tomllib.loads(SAMPLE.read_text()) == {}


def test_clients_of_kafka_0_7_need_a_port_of_their_own():
    assert Settings.load(flags={"legacy_port": 9093, "zookeeper": "zk:2181"}).zookeeper == "zk:2181"
    assert Settings.load(flags={"legacy_port": 9096, "workers": 4}).legacy_port == 9096
    assert "legacy_port should say where they connect" in refused(zookeeper="zk:2181")
    for hosts in ({"host": "::1"}, {"host": "0.0.0.0", "advertised_host": "fe80::1"}):
        message = refused(legacy_port=9093, zookeeper="zk:2181", **hosts)
        assert "advertised_host should be a name or an IPv4 address" in message
        given = {"legacy_port": 9093, "legacy_allow_plaintext": True, **hosts}
        assert Settings.load(flags=given).zookeeper is None  # nobody is told of the host
    for hosts in ({"host": "::1", "advertised_host": "here"}, {"host": "::"}):
        given = {"legacy_port": 9093, "legacy_allow_plaintext": True, "zookeeper": "zk:2181", **hosts}
        assert Settings.load(flags=given).zookeeper == "zk:2181"
    assert "legacy_port = 9092 should be at least 1 away from port = 9092" in refused(legacy_port=9092)
    assert "legacy_port = 9093 should be at least 2 away from port = 9092" in refused(legacy_port=9093, workers=2)
    assert "2 workers from port 65535 on would need port 65536" in refused(legacy_port=65535, workers=2)


def test_an_audit_log_needs_something_to_tell_of():
    assert "audit_log is for what ACLs decide: set authorizer_class_name, too" in refused(audit_log="audit")
    assert Settings.load(flags={"audit_log": "audit", "authorizer_class_name": "standard"}).audit_log == Path("audit")


def test_copies_on_disk_need_a_disk_that_is_synced():
    assert 'copies_on_disk needs fsync = "always" of the embedded Valkey, not "everysec"' in refused(
        copies_on_disk=True
    )
    for given, on_disk in (
        ({}, False),
        ({"fsync": "always"}, True),
        ({"redis": "redis://localhost", "fsync": "always"}, False),
        ({"redis": "redis://localhost", "copies_on_disk": True}, True),
    ):
        assert Settings.load(flags=given).copies_are_on_disk == on_disk
