"""Users of Kafka clients in the console: they log in, see what their ACLs let them, and change what they may."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ketch.security.acls import CLUSTER_NAME, Operation, ResourceType
from tests.support import http
from tests.support.acls import KEY, ON, allow
from tests.support.console import Visitor
from tests.support.ketch import KetchServer, eventually
from tests.support.sasl import PLAIN, add_user, sasl_server

CONSOLE = ("--http-port", "0", "--console", "--console-write")
PASSWORD = "in-secret"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALICES = (
    (TOPIC, "hers", Operation.READ),
    (TOPIC, "hers", Operation.WRITE),
    (TOPIC, "seen", Operation.DESCRIBE),
    (GROUP, "hers", Operation.READ),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    """Topics hers, seen and veiled, groups hers and veiled; admin may do everything, alice what ALICES says."""
    directory = tmp_path_factory.mktemp("users")
    server = sasl_server(directory, *ON, "--super-users", "User:admin", *CONSOLE).start()
    for name in ("admin", "alice"):
        add_user(server, name, PASSWORD)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": PLAIN, "sasl.username": "admin"}
    client = {"bootstrap.servers": server.bootstrap, "sasl.password": PASSWORD, **login}
    admin = AdminClient(client)
    for future in admin.create_topics([NewTopic(name, 1, -1) for name in ("hers", "seen", "veiled")]).values():
        future.result(30)
    for group in ("hers", "veiled"):
        consumer = Consumer({**client, "group.id": group})
        offsets = [TopicPartition("hers", 0, 0), TopicPartition("veiled", 0, 0)]
        eventually(lambda consumer=consumer, offsets=offsets: consumer.commit(offsets=offsets, asynchronous=False))
        consumer.close()
    acls = [allow(resource, name, operation, principal="User:alice") for resource, name, operation in ALICES]
    server.redis().sadd(KEY, *(acl.text for acl in acls))
    eventually(lambda: "ACLs are in force" in server.log.rpartition("0 ACLs")[2], what="the ACLs")
    yield server
    assert server.stop() == 0, server.log
    assert "Traceback" not in server.log, server.log


def logged_in(server: KetchServer, user: str) -> Visitor:
    visitor = Visitor.of(server)
    csrf = visitor.csrf("/login")
    answer = visitor.post("/login", {"csrf": csrf, "user": user, "password": PASSWORD, "next": "/topics"})
    assert (answer.status, answer.location) == (303, "/topics")
    return visitor


@pytest.fixture
def alice(server: KetchServer) -> Visitor:
    return logged_in(server, "alice")


def names(visitor: Visitor, path: str) -> list[str]:
    return [row[0] for row in visitor.get(path).table()]


def test_who_does_not_log_in_sees_nothing(server: KetchServer) -> None:
    visitor = Visitor.of(server)
    for path in ("/", "/topics", "/live", "/topic/records?name=hers", "/settings"):
        assert (visitor.get(path).status, visitor.ask("GET", path).status) == (303, 401)
        assert visitor.ask("GET", path, Authorization="Bearer x").status == 401
    csrf = visitor.csrf("/login")
    for wrong in ({"user": "alice", "password": "wrong"}, {"user": "nobody", "password": PASSWORD}, {"token": ""}):
        assert visitor.post("/login", {"csrf": csrf, **wrong}).status == 401
        assert visitor.get("/topics").status == 303
    assert visitor.post("/login", {"csrf": csrf, "user": "a\0alice", "password": PASSWORD}).status == 401


def test_a_cookie_of_somebody_else_is_none(server: KetchServer, alice: Visitor) -> None:
    ((name, value),) = alice.cookies.items()
    id, _, user, until, mac = value.split(".")
    assert bytes.fromhex(user) == b"alice"
    for forged in (f"{id}.1.{b'admin'.hex()}.{until}.{mac}", f"{id}.1..{until}.{mac}", f"{id}.1.{user}.9{until}.{mac}"):
        alice.cookies = {name: forged}
        assert alice.get("/topics").status == 303, forged


def test_a_super_user_sees_and_does_everything(server: KetchServer) -> None:
    admin = logged_in(server, "admin")
    assert {"hers", "seen", "veiled"} <= set(names(admin, "/topics"))
    assert {"hers", "veiled"} <= set(names(admin, "/groups"))
    assert admin.get("/settings").status == 200
    assert admin.change("create", "made", partitions=1).location == "/topic?name=made"
    assert admin.change("delete", "made").location == "/topics"


def test_what_may_not_be_described_is_not_there(alice: Visitor) -> None:
    assert names(alice, "/topics") == ["hers", "seen"]
    assert names(alice, "/groups") == ["hers"]
    for path in ("/topic", "/topic/records", "/topic/record", "/topic/tail", "/archive/topic", "/spark/reading"):
        answer = alice.get(path, name="veiled", topic="veiled")
        assert (answer.status, "There is no topic veiled." in answer.text) == (404, True), path
    for path in ("/group", "/group/reset"):
        assert alice.get(path, name="veiled", to="latest").status == 404
    group = alice.get("/group", name="hers")
    assert group.status == 200
    assert "veiled" not in group.text
    assert "veiled" not in alice.get("/group/reset", name="hers", to="latest").text
    for path in ("/", "/archive", "/spark", "/clients"):
        answer = alice.get(path)
        assert (answer.status, "veiled" in answer.text) == (200, False), path


def test_records_and_configs_want_more(alice: Visitor) -> None:
    assert alice.get("/topic", name="seen").status == 200
    for path in ("/topic/records", "/topic/record", "/topic/tail"):
        answer = alice.get(path, name="seen")
        assert (answer.status, "it takes READ of seen" in answer.text) == (403, True), path
    assert alice.get("/topic/records", name="hers").status == 200
    assert "max.message.bytes" not in alice.get("/topic", name="hers", tab="configs").text
    assert alice.get("/settings").status == 403
    assert "User:admin" not in alice.get("/clients").text


def test_changes_want_their_rights(alice: Visitor, server: KetchServer) -> None:
    made = alice.change("produce", "hers", partition=0, key="k", value="v")
    assert made.location.startswith("/topic/record?name=hers")
    assert alice.get(made.location).status == 200
    refused = {
        "create": ("new", {"partitions": 1}),
        "delete": ("hers", {}),
        "grow": ("hers", {"partitions": 2}),
        "alter": ("hers", {"config": "retention.ms", "value": "1"}),
        "produce": ("seen", {"partition": 0, "value": "v"}),
        "delete-group": ("hers", {}),
    }
    for action, (name, fields) in refused.items():
        answer = alice.change(action, name, **fields)
        assert answer.status == 409, (action, answer.text)
        assert "authoriz" in answer.text.lower(), action
    assert alice.change("delete-group", "veiled").status == 409
    assert alice.change("reset", "hers", to="latest", value="", topic="hers").location == "/group?name=hers"
    assert "alice at 127.0.0.1 asks to delete topic 'hers'" in server.log


def test_a_right_that_is_given_counts_at_once(alice: Visitor, server: KetchServer) -> None:
    text = allow(CLUSTER, CLUSTER_NAME, Operation.DESCRIBE_CONFIGS, principal="User:alice").text
    assert alice.get("/settings").status == 403
    server.redis().sadd(KEY, text)
    eventually(lambda: alice.get("/settings").status == 200, what="the right")
    server.redis().srem(KEY, text)
    eventually(lambda: alice.get("/settings").status == 403, what="the right to be gone")


def test_logging_out(alice: Visitor) -> None:
    text = alice.get("/topics").text
    assert "Log out alice" in text
    answer = alice.post("/logout", {"csrf": alice.csrf("/topics/new")})
    assert (answer.status, answer.location) == (303, "/login")
    assert alice.get("/topics").status == 303


def test_metrics_stay_for_programs(server: KetchServer) -> None:
    assert Visitor(http.url(server).removeprefix("http://")).get("/metrics").status == 200
