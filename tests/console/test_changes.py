"""What the console changes, and that each change asks for a typed name."""

from __future__ import annotations

import html
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from tests.console.test_pages import create, produce, read_all
from tests.support.console import Visitor
from tests.support.ketch import KetchServer

StartKetch = Callable[..., KetchServer]
LIMIT = 60


def partitions(server: KetchServer, name: str) -> int:
    """How many a client sees; 0 where there is no such topic."""
    found = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=LIMIT).topics.get(name)
    return 0 if found is None else len(found.partitions)


def config(server: KetchServer, name: str, key: str) -> str:
    asked = ConfigResource(ResourceType.TOPIC, name)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    (future,) = admin.describe_configs([asked]).values()
    return str(future.result(LIMIT)[key].value)


def test_a_topics_life(server: KetchServer, visitor: Visitor) -> None:
    made = visitor.change("create", "made.here", partitions=2, layout="batch", ids="dense", retention="12345")
    assert (made.status, made.location) == (303, "/topic?name=made.here")
    assert partitions(server, "made.here") == 2
    found = [config(server, "made.here", key) for key in ("storage.layout", "offset.ids", "retention.ms")]
    assert found == ["batch", "dense", "12345"]
    assert visitor.change("alter", "made.here", config="retention.ms", value="777").status == 303
    assert config(server, "made.here", "retention.ms") == "777"
    assert visitor.change("alter", "made.here", config="retention.ms", default="on").status == 303
    assert config(server, "made.here", "retention.ms") == "604800000"
    assert visitor.change("grow", "made.here", partitions=5).status == 303
    assert partitions(server, "made.here") == 5
    assert visitor.change("delete", "made.here").location == "/topics"
    assert partitions(server, "made.here") == 0


@pytest.mark.parametrize("confirm", ["", "other", "KEPT", "kept "])
@pytest.mark.parametrize("action", ["delete", "grow", "alter", "produce", "reset", "delete-group", "create"])
def test_nothing_happens_unless_the_name_is_typed(visitor: Visitor, action: str, confirm: str) -> None:
    if visitor.get("/topic", name="kept").status == 404:
        assert visitor.change("create", "kept", partitions=1).status == 303
    answer = visitor.change(
        action, "kept", confirm=confirm, partitions=9, config="retention.ms", value="1", to="latest"
    )
    assert answer.status == 409
    assert "the name that was typed is not this one" in html.unescape(answer.text)
    page = visitor.get("/topic", name="kept")
    assert [row[:2] for row in page.table()] == [["0", "0"]]


@pytest.mark.parametrize(
    ("action", "fields", "sentence"),
    [
        ("create", {"name": "bad/name", "partitions": 1}, "was not created"),
        ("create", {"name": "many", "partitions": 0}, "partitions should be a number from 1"),
        ("create", {"name": "many", "partitions": "x"}, "partitions should be a number from 1"),
        ("create", {"name": "odd", "partitions": 1, "retention": "soon"}, "was not created"),
        ("delete", {"name": "none-such"}, "was not deleted"),
        ("grow", {"name": "none-such", "partitions": 3}, "got no partitions"),
        ("alter", {"name": "none-such", "config": "retention.ms", "value": "1"}, "was not changed"),
        ("produce", {"name": "none-such", "partition": "x"}, "partition should be a number"),
        ("produce", {"name": "none-such", "partition": 0, "headers": "no colon"}, "A header is a line"),
        ("reset", {"name": "nobody", "to": "sideways"}, "A reset goes to one of"),
        ("delete-group", {"name": "nobody"}, "was not deleted"),
    ],
)
def test_what_cannot_be_is_a_sentence_and_the_form_again(
    visitor: Visitor, action: str, fields: dict[str, object], sentence: str
) -> None:
    name = str(fields["name"])
    answer = visitor.change(action, name, **{key: value for key, value in fields.items() if key != "name"})
    assert answer.status == 409
    assert sentence in html.unescape(answer.text)
    assert f'action="/change/{action}"' in answer.text


def test_a_change_that_is_none(visitor: Visitor) -> None:
    assert visitor.change("explode", "x").status == 404
    assert visitor.get("/change", action="explode", name="x").status == 404


def test_producing(server: KetchServer, visitor: Visitor) -> None:
    create(server, "typed", 2)
    fields = {"partition": 0, "key": "k ä", "value": "first\r\nsecond <b>", "headers": "trace: 1:2\nempty:\n"}
    shown = visitor.change("produce", "typed", **fields)
    where = parse_qs(urlsplit(shown.location).query)
    ((offset, value),) = read_all(server, "typed", 1)
    assert (where["partition"], where["offset"]) == (["0"], [str(offset)])
    assert value.decode() == "first\nsecond <b>"
    page = visitor.get(shown.location)
    assert page.status == 200
    assert "trace:" in page.text
    assert visitor.change("produce", "typed", partition=1, null_key="on", null_value="on").status == 303
    assert visitor.get("/topic/records", name="typed", partition=1).table()[0][3:5] == ["null", "null"]


def test_resetting_a_group_and_deleting_it(server: KetchServer, visitor: Visitor) -> None:
    create(server, "reread")
    produce(server, "reread", [(b"k", b"%d" % n) for n in range(40)])
    seen = read_all(server, "reread", 40)
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["reread"])
    assert len(consumer.consume(40, LIMIT)) == 40
    consumer.commit(asynchronous=False)
    refused = visitor.change("reset", "readers", to="earliest")
    assert refused.status == 409
    assert "stop its consumers first" in html.unescape(refused.text)
    consumer.close()
    assert visitor.change("reset", "readers", to="back", value=10).status == 303
    assert committed(server, "readers", "reread") == seen[30][0]
    assert visitor.get("/group", name="readers").table()[0][4] == "10"
    assert visitor.change("reset", "readers", to="offset", value=seen[3][0]).status == 303
    assert visitor.get("/group", name="readers").table()[0][4] == "37"
    assert visitor.change("reset", "readers", to="latest").status == 303
    assert visitor.get("/group", name="readers").table()[0][4] == "0"
    assert visitor.change("delete-group", "readers").location == "/groups"
    assert visitor.get("/group", name="readers").status == 404


def committed(server: KetchServer, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], LIMIT)
    consumer.close()
    return int(found.offset)


def test_changes_are_logged_with_who_made_them(server: KetchServer, visitor: Visitor) -> None:
    visitor.change("create", "logged", partitions=1)
    assert "console: 127.0.0.1 asks to create topic 'logged'" in server.log
    assert "ketch-console at 127.0.0.1: created topic logged with 1 partitions" in server.log
