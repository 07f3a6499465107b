"""What pages show: numbers that clients counted, hostile names and records escaped, lists in pages, and bounds."""

from __future__ import annotations

import contextlib
import html
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.batches import batch, record
from tests.support.console import Visitor
from tests.support.ketch import KetchServer, eventually
from tests.support.share_members import ShareAdmin, Sharer

StartKetch = Callable[..., KetchServer]
LIMIT = 60
HOSTILE = [
    b"<script>alert(1)</script>",
    b'"><img src=x onerror=alert(1)>',
    b"' onmouseover='alert(1)",
    b"{{ 7*7 }}{% raw %}",
    b"\0\x1b[31m\r\n\xff\xfe",
    "\u202eevil\u2066".encode(),
    b"</pre></td></table><h1>gone</h1>",
    b"javascript:alert(1)",
    b"&lt;b&gt;&amp;",
]
TAGS = {
    *("html", "head", "meta", "title", "link", "script", "body", "header", "nav", "main", "section", "div", "p", "br"),
    *("a", "img", "span", "strong", "code", "pre", "meter", "button", "h1", "h2", "h3", "dl", "dt", "dd", "ul", "li"),
    *("table", "thead", "tbody", "tr", "th", "td", "form", "fieldset", "legend", "label", "input", "select", "option"),
    "textarea",
}
KINDS = {"record": {"storage.layout": "record"}, "batch": {"storage.layout": "batch"},
         "dense": {"storage.layout": "batch", "offset.ids": "dense"}}  # fmt: skip


def create(server: KetchServer, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    made = admin.create_topics([NewTopic(name, partitions, config={k.replace("_", "."): v for k, v in config.items()})])
    made[name].result(LIMIT)


def produce(server: KetchServer, name: str, records: list[tuple[bytes | None, bytes | None]], **more: object) -> None:
    """To partition 0, in order."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20, "message.max.bytes": 200_000_000})
    for key, value in records:
        producer.produce(name, value, key, partition=0, **more)  # type: ignore[arg-type]
        producer.poll(0)
    assert producer.flush(LIMIT) == 0


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- topics


def test_a_topics_page_counts_what_clients_produced(server: KetchServer, visitor: Visitor, kind: str) -> None:
    name = f"counted-{kind}"
    create(server, name, 3, **{k.replace(".", "_"): v for k, v in KINDS[kind].items()})
    produce(server, name, [(b"k", b"%d" % n) for n in range(321)])
    rows = visitor.get("/topic", name=name).table()
    assert [row[1] for row in rows] == ["321", "0", "0"]
    (row,) = visitor.get("/topics", q=name).table()
    assert row[:2] == [name, "3"]
    assert row[5:7] == [KINDS[kind]["storage.layout"], KINDS[kind].get("offset.ids", "time")]
    if kind != "batch":  # whose number the list estimates
        assert row[2] == "321"


def test_topics_come_in_pages_and_are_found_by_words(server: KetchServer, visitor: Visitor) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    names = [f"paged.{n:03}.{'even' if n % 2 == 0 else 'odd'}" for n in range(120)]
    for future in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        future.result(LIMIT)
    found: list[str] = []
    path = "/topics?q=paged"
    while path:
        page = visitor.get(path)
        found += [row[0] for row in page.table()]
        more = re.search(r'href="([^"]*)" rel="next"', page.text)
        path = html.unescape(more[1]) if more else ""
    assert found == names
    assert [row[0] for row in visitor.get("/topics", q="EVEN 01 paged").table()] == [
        name for name in names if "even" in name and "01" in name
    ]
    assert "No topic has these words" in visitor.get("/topics", q="paged nowhere").text
    for number in ("x", "--5", "-", "5-"):
        assert visitor.get("/topics", q="paged", **{"from": number}).status == 404
    assert len(visitor.get("/topics", q="paged", **{"from": 99999}).table()) == 50


def test_ten_thousand_topics(start_ketch: StartKetch) -> None:
    """A page of them reads no more than its own, whatever there is; one of a thousand partitions as well."""
    server = start_ketch("--http-port", "0", "--console")
    create(server, "wide", 1000)
    keys = server.redis().keys("korvet:topic:*")
    fields = server.redis().hgetall(keys[0])
    with server.redis().pipeline(transaction=False) as pipe:
        for n in range(10_000):
            pipe.hset(f"korvet:topic:t{n:05}", mapping={**fields, b"name": f"t{n:05}", b"partitions": 1})
            pipe.sadd("korvet:topics", f"t{n:05}")
        pipe.execute()
    visitor = Visitor.of(server)
    page = visitor.get("/topics")
    assert "of 10,001 topics" in page.text
    assert (len(page.table()), len(page.body) < 100_000) == (50, True)
    assert [row[0] for row in visitor.get("/topics", q="t09999").table()] == ["t09999"]
    page = visitor.get("/topic", name="wide", **{"from": 900})
    assert [row[0] for row in page.table()] == [str(n) for n in range(900, 1000)]
    server.redis().config_resetstat()
    visitor.get("/topics", q="t0")
    calls = {name: stats["calls"] for name, stats in server.redis().info("commandstats").items()}
    assert calls["cmdstat_hgetall"] <= 200  # 50 topics, their archives, and what the broker itself asks
    assert calls["cmdstat_xinfo|stream"] + calls.get("cmdstat_eval", 0) <= 100


def test_configs_that_are_not_default_stand_out(server: KetchServer, visitor: Visitor) -> None:
    create(server, "configured", retention_ms="3600000", cleanup_policy="compact")
    page = visitor.get("/topic", name="configured", tab="configs")
    own = re.findall(r'<tr class="own">\s*<td><code>([^<]*)</code></td>\s*<td class="mono">([^<]*)</td>', page.text)
    assert own == [("cleanup.policy", "compact"), ("retention.ms", "3600000")]
    assert "retention.ms=3600000" in visitor.get("/topic", name="configured").text


# -- hostile names and records


def test_hostile_topic_names(server: KetchServer, visitor: Visitor) -> None:
    """Kafka's clients cannot make such topics; another Redis client can."""
    create(server, "harmless")
    fields = server.redis().hgetall("korvet:topic:harmless")
    client = server.redis()
    for evil in HOSTILE:
        if evil.decode(errors="replace").encode() != evil:
            continue
        client.hset(b"korvet:topic:" + evil, mapping={**fields, b"name": evil})
        client.sadd("korvet:topics", evil)
        client.xadd(b"korvet:stream:" + evil + b":0", {"value": evil, "transaction": evil, "control": "commit"})
        client.hset(b"korvet:archive:" + evil, mapping={"metadata": evil, "table": evil, "through:0": 1})
    try:
        for path in ("/topics", "/spark", "/archive", "/"):
            assert_harmless(visitor.get(path).text)
        assert "archive stands still" in visitor.get("/").text
        for evil in HOSTILE:
            for path in ("/topic", "/topic/records", "/topic/record", "/group", "/group/reset", "/change"):
                answer = visitor.get(path, name=evil, to="earliest", action="delete", tab="configs", offset=3)
                assert answer.status in (200, 303, 404)
                assert_harmless(answer.text)
    finally:
        client.srem("korvet:topics", *HOSTILE)
        kinds = (b"korvet:topic:%s", b"korvet:stream:%s:0", b"korvet:archive:%s")
        client.delete(*(kind % evil for kind in kinds for evil in HOSTILE))


def test_hostile_records(server: KetchServer, visitor: Visitor, kind: str) -> None:
    name = f"hostile-{kind}"
    create(server, name, **{k.replace(".", "_"): v for k, v in KINDS[kind].items()})
    for evil in HOSTILE:
        produce(server, name, [(evil, evil)], headers=[(evil.decode(errors="replace").replace("\0", "0"), evil)])
    page = visitor.get("/topic/records", name=name)
    assert_harmless(page.text)
    assert len(page.table()) == len(HOSTILE)
    for path in record_paths(page.text):
        for form in ("text", "json", "hex"):
            record = visitor.get(f"{path}&as={form}")
            assert record.status == 200
            assert_harmless(record.text)
    shown = html.unescape(page.text)
    assert "<script>alert(1)</script>" in shown
    assert "\\x00\\x1b[31m\\r\\n\\xff\\xfe" in shown
    assert "\\u202eevil\\u2066" in shown


def test_hostile_groups_clients_and_queries(server: KetchServer, visitor: Visitor) -> None:
    create(server, "grouped-evil")
    produce(server, "grouped-evil", [(b"k", b"v")])
    for evil in HOSTILE:
        text = evil.decode(errors="replace").replace("\0", "0")
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": text, "client.id": text})
        consumer.commit(offsets=[TopicPartition("grouped-evil", 0, 1, metadata=text)], asynchronous=False)
        assert_harmless(visitor.get("/clients").text)
        consumer.close()
        for path in ("/group", "/group/reset"):
            answer = visitor.get(path, name=text, to="earliest")
            assert answer.status == 200
            assert_harmless(answer.text)
    for path in ("/groups", "/topics", "/archive", "/spark", "/clients", "/login"):
        for evil in HOSTILE:
            assert_harmless(visitor.get(path, q=evil, next=evil).text)
    for evil in HOSTILE:
        answer = visitor.get("/topic/records", name="grouped-evil", key=evil, id=evil, time=evil, offset=evil, how=evil)
        assert_harmless(answer.text)
    state = "0 -1 1700000000000"
    server.redis().hset("korvet:producers:{korvet:stream:grouped-evil:0}", "spark-<script>alert(1)</script>-0", state)
    page = visitor.get("/spark", q="grouped-evil")
    assert_harmless(page.text)
    assert "&lt;script&gt;alert(1)" in page.text


def assert_harmless(text: str) -> None:
    """Nothing of what was written by others has become markup, or turns the text around."""
    markup = Markup()
    markup.feed(text)
    assert markup.seen <= TAGS
    assert not [name for _, name, _ in markup.attributes if name.startswith("on") or name == "style"]
    for tag, name, value in markup.attributes:
        if name in ("src", "href", "action", "hx-get", "sse-connect", "data-live"):
            assert re.match(r"/(?!/)|#main$", value), (tag, name, value)
    assert not any(ord(c) < 32 and c not in "\n\t" for c in markup.text)
    assert not set(markup.text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Markup(HTMLParser):
    """The elements and attributes of a page, as a browser has them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        sources = dict(attrs)
        self.seen.add("img of another" if tag == "img" and sources.get("src") != "/static/icon.svg" else tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]


def record_paths(text: str) -> list[str]:
    return [html.unescape(path) for path in re.findall(r'href="(/topic/record\?[^"]*)"', text)]


# -- records


def test_records_are_found_by_offset_id_time_and_key(server: KetchServer, visitor: Visitor, kind: str) -> None:
    name = f"found-{kind}"
    create(server, name, **{k.replace(".", "_"): v for k, v in KINDS[kind].items()})
    for n in range(0, 400, 100):  # batches of their own
        produce(
            server,
            name,
            [(b"key-%03d" % (n + m), b"value %d" % (n + m)) for m in range(100)],
            timestamp=1_700_000_000_000 + n,
        )
    seen = read_all(server, name, 400)
    newest = visitor.get("/topic/records", name=name)
    assert [row[4] for row in newest.table()] == [f"value {n}" for n in range(399, 349, -1)]
    walked, path = [row[4] for row in newest.table()], next_of(newest.text)
    while path:
        page = visitor.get(path)
        walked += [row[4] for row in page.table()][::-1] if "offset=" in path else [row[4] for row in page.table()]
        path = next_of(page.text)
    assert walked == [f"value {n}" for n in range(399, -1, -1)]
    for n in (0, 57, 100, 399):
        offset, _ = seen[n]
        page = visitor.get("/topic/records", name=name, offset=offset)
        assert [row[4] for row in page.table()] == [f"value {m}" for m in range(n, min(n + 50, 400))]
        (row,) = visitor.get("/topic/records", name=name, key=f"key-{n:03}").table()
        assert (row[0], row[3], row[4]) == (str(offset), f"key-{n:03}", f"value {n}")
        assert visitor.get("/topic/record", name=name, offset=offset).status == 200
    entry = server.redis().xrange(f"korvet:stream:{name}:0", count=1)[0][0].decode()
    assert visitor.get("/topic/records", name=name, id=entry).table()[-1][4] in {f"value {n}" for n in range(400)}
    page = visitor.get("/topic/records", name=name, time="2023-11-14T22:13:20.150")
    assert page.table()[0][4] == "value 200"
    assert visitor.get("/topic/records", name=name, time="2099-01-01").table() == [["No records here."]]
    assert [row[4] for row in visitor.get("/topic/records", name=name, key="-39", how="has").table()] == [
        f"value {n}" for n in range(390, 400)
    ]
    assert visitor.get("/topic/records", name=name, key="key-39").table() == [
        ["No record from there on has such a key."]
    ]


def next_of(text: str) -> str:
    found = re.search(r'href="([^"]*)" rel="(?:next|prev)">Older', text)
    return html.unescape(found[1]) if found else ""


def read_all(server: KetchServer, name: str, count: int) -> list[tuple[int, bytes]]:
    """Offsets and values as a Kafka client has them."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "r", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        message = consumer.poll(LIMIT)
        assert message is not None
        assert message.error() is None
        offset, value = message.offset(), message.value()
        assert offset is not None
        found.append((offset, bytes(value or b"")))
    consumer.close()
    return found


@pytest.mark.parametrize("asked", [{"partition": 9}, {"partition": "x"}, {"offset": "x"}, {"id": "x"}, {"time": "x"}])
def test_a_place_that_does_not_exist_is_a_sentence(
    visitor: Visitor, server: KetchServer, asked: dict[str, object]
) -> None:
    if visitor.get("/topic", name="placed").status == 404:
        create(server, "placed")
    page = visitor.get("/topic/records", name="placed", **asked)
    assert page.status == 404
    assert "This cannot be shown" in page.text


def test_null_and_empty_are_told_apart(server: KetchServer, visitor: Visitor, kind: str) -> None:
    name = f"nothing-{kind}"
    create(server, name, **{k.replace(".", "_"): v for k, v in KINDS[kind].items()})
    produce(server, name, [(None, None), (b"", b"")])
    assert [row[3:5] for row in visitor.get("/topic/records", name=name).table()] == [["empty"] * 2, ["null"] * 2]


def test_a_search_is_bounded_and_says_where_it_would_go_on(server: KetchServer, visitor: Visitor) -> None:
    create(server, "searched")
    with server.redis().pipeline(transaction=False) as pipe:
        for n in range(45_000):
            pipe.xadd("korvet:stream:searched:0", {"key": f"k{n}", "value": "v"})
        pipe.execute()
    page, looks = visitor.get("/topic/records", name="searched", offset=0, key="k44999"), 1
    assert page.table() == [["None so far."]]
    while go_on := re.search(r'id="go-on" href="([^"]*)"', page.text):
        page, looks = visitor.get(html.unescape(go_on[1])), looks + 1
    assert [row[3] for row in page.table()] == ["k44999"]
    assert looks == 3


@pytest.mark.parametrize("kind", ["record", "batch"])
def test_a_value_of_100_mb_is_shown_from_its_beginning(server: KetchServer, visitor: Visitor, kind: str) -> None:
    name = f"huge-{kind}"
    create(server, name, storage_layout=kind, max_message_bytes="100000000")
    produce(server, name, [(b"small", b"before"), (b"huge", b"begin " + b"x" * 95_000_000), (b"small", b"after")])
    page = visitor.get("/topic/records", name=name)
    assert len(page.body) < 50_000
    rows = page.table()
    if kind == "record":
        assert [row[3] for row in rows] == ["small", "huge", "small"]
        assert rows[1][5] == "90.6 MiB"
        record = visitor.get(record_paths(page.text)[1])
        assert "begin xxx" in record.text
        assert "the first 64.0 KiB are shown" in record.text
        assert len(record.body) < 100_000
        assert [row[3] for row in visitor.get("/topic/records", name=name, offset=0, key="huge").table()] == ["huge"]
    else:  # its batch is not opened
        assert any("too large to be opened here" in row[4] for row in rows)
    server.redis().config_resetstat()
    (row,) = visitor.get("/topics", q=name).table()
    assert row[2] == ("3" if kind == "record" else "\u2013")
    topic = visitor.get("/topic", name=name)
    assert "does not renew itself" in topic.text
    assert "data-refresh" not in topic.text
    assert server.redis().info("stats")["total_net_output_bytes"] < 1 << 20  # not the values


def test_the_commands_beside_a_record_show_the_same_record(
    server: KetchServer, visitor: Visitor, kind: str, tmp_path: Path
) -> None:
    name = f"elsewhere-{kind}"
    create(server, name, **{k.replace(".", "_"): v for k, v in KINDS[kind].items()})
    produce(server, name, [(b"a", b"1"), (b"it's", b'\x00caf\xc3\xa9 "two"'), (b"c", b"3")], headers=[("h", b"x")])
    offset, value = read_all(server, name, 3)[1]
    page = visitor.get("/topic/record", name=name, offset=offset)
    redis_cli, consume = map(shlex.split, page.codes())
    assert consume[0] == "ketch"
    command = [sys.executable, "-m", *consume]
    told = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=LIMIT).stdout)
    assert (told["offset"], told["key"], told["value"].encode()) == (offset, "it's", value)
    if shutil.which("redis-cli") is None:
        pytest.skip("there is no redis-cli")
    shown = subprocess.run(redis_cli, capture_output=True, check=True, timeout=LIMIT).stdout
    entry_id = re.search(r"<dt>Entry id</dt><dd><code>([\d-]+)</code>", page.text)
    assert entry_id
    assert shown.split()[0].decode() == entry_id[1]
    if kind == "record":
        assert value in shown


def test_an_entry_that_another_client_added_and_markers_of_transactions(server: KetchServer, visitor: Visitor) -> None:
    create(server, "mixed")
    client = server.redis()
    client.xadd("korvet:stream:mixed:0", {"value": "by hand", "colour": "red"}, id="5-5")
    client.xadd("korvet:stream:mixed:0", {"value": "no marker", "transaction": "1:x", "control": "commit"}, id="5-6")
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "t"})
    producer.init_transactions(LIMIT)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("mixed", "in a transaction")
        producer.flush(LIMIT)
        end(LIMIT)
    values = [row[4] for row in visitor.get("/topic/records", name="mixed", offset=0).table()]
    assert values[:2] == ["by hand", "no marker"]
    assert [re.sub(r"\d+:\d+", "ID", value) for value in values[2:]] == [
        "in a transaction", "commit of transaction ID", "in a transaction", "abort of transaction ID",
    ]  # fmt: skip


def test_the_tail_shows_what_comes_in(server: KetchServer, visitor: Visitor, kind: str) -> None:
    name = f"tailed-{kind}"
    create(server, name, 2, **{k.replace(".", "_"): v for k, v in KINDS[kind].items()})
    produce(server, name, [(b"k", b"before")])
    with visitor.listen(f"/topic/tail?name={name}") as lines:
        produce(server, name, [(b"k", b"<b>now</b> %d" % n) for n in range(3)])
        text = ""
        while text.count("<tr>") < 3:
            text += next(lines)
    assert re.findall(r"&lt;b&gt;now&lt;/b&gt; (\d)", text) == ["2", "1", "0"]
    assert "before" not in text


# -- groups


def test_a_groups_lag_is_what_is_left_to_read(server: KetchServer, visitor: Visitor, kind: str) -> None:
    name = f"lagging-{kind}"
    create(server, name, **{k.replace(".", "_"): v for k, v in KINDS[kind].items()})
    for n in range(0, 90, 30):
        produce(server, name, [(b"k", b"%d" % (n + m)) for m in range(30)])
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    got: list[object] = []
    while len(got) < 37:
        got += consumer.consume(37 - len(got), 1)
    consumer.commit(message=got[-1], asynchronous=False)  # type: ignore[arg-type]
    page = visitor.get("/group", name=name)
    assert 'id="state">Stable<' in page.text
    members, rows = page.table(0), page.table(1)
    assert members[0][4] == f"{name}:0"
    assert (rows[0][0], rows[0][4]) == (name, "53")
    assert rows[0][8] == members[0][1]
    assert re.fullmatch(r"[\d.]+ (ms|s)", rows[0][5])
    consumer.close()
    (row,) = visitor.get("/groups", q=name).table()
    assert row[:6] == [name, "Empty", "classic", "0", "1", "53"]
    moves = visitor.get("/group/reset", name=name, to="back", value=7).table()
    assert (moves[0][4], moves[0][5]) == ("53", "60")
    moves = visitor.get("/group/reset", name=name, to="latest").table()
    assert (moves[0][4], moves[0][5]) == ("53", "0")
    moves = visitor.get("/group/reset", name=name, to="earliest").table()
    assert moves[0][5] == "90"


def test_pending_deliveries_of_the_native_group(server: KetchServer, visitor: Visitor) -> None:
    create(server, "native")
    produce(server, "native", [(b"k", b"%d" % n) for n in range(5)])
    client = server.redis()
    stream = "korvet:stream:native:0"
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "natives"})
    consumer.commit(offsets=[TopicPartition("native", 0, 0)], asynchronous=False)
    consumer.close()

    def delivered() -> bool:
        with contextlib.suppress(redis.ResponseError):
            client.xgroup_create(stream, "natives", "0")
        client.xreadgroup("natives", "c", {stream: ">"}, count=3)
        return bool(client.xpending(stream, "natives")["pending"])

    def shown() -> bool:
        """The commit may reach the native group after a delivery, and settle it."""
        shown = visitor.get("/group", name="natives").table()[0][6]
        return delivered() and shown == str(client.xpending(stream, "natives")["pending"]) != "0"

    eventually(shown)


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_a_share_group_stands_at_its_first_record_that_is_not_settled(
    server: KetchServer, visitor: Visitor, layout: str
) -> None:
    name = f"share-{layout}"
    with Sharer(server.port, name) as member, ShareAdmin(server.port, name) as admin:
        member.create(name, 2, storage_layout=layout)
        base = member.stored(name, batch([record(b"x", offset_delta=n) for n in range(5)]))
        member.enters(name)
        member.goes()
        admin.alter({name: {0: base + 2}})
        member.enters(name)
        (row,) = visitor.get("/groups", q=name).table()
        assert row[:6] == [name, "Stable", "share", "1", "2", "3"]
        page = visitor.get("/group", name=name)
        assert page.table(0)[0][1] == member.id
        none = "\u2013"
        assert [(row[1], row[2], row[4]) for row in page.table(1)] == [("0", str(base + 2), "3"), ("1", none, none)]
        member.goes()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"to": "nowhere"}, "A reset goes to one of"),
        ({"to": "offset", "value": "x"}, "A reset to offset needs a number"),
        ({"to": "time", "value": "yesterday"}, "is no time"),
        ({"to": "latest", "topic": "none-such"}, "There is no topic none-such"),
        ({"to": "latest", "partition": "x"}, "is no partition"),
    ],
)
def test_a_reset_that_cannot_be(visitor: Visitor, asked: dict[str, str], sentence: str) -> None:
    page = visitor.get("/group/reset", name="g", **asked)
    assert page.status == 404
    assert sentence in html.unescape(page.text)


# -- the rest


def test_rates_come_while_somebody_looks_and_cost_nothing_else(server: KetchServer, visitor: Visitor) -> None:
    create(server, "rated")
    with visitor.listen("/live") as lines:
        assert any(line.startswith("data: ") for line in lines)  # it counts from here on
        produce(server, "rated", [(b"k", b"v" * 100)] * 1000)
        records, until = 0.0, time.monotonic() + LIMIT
        while records < 900 and time.monotonic() < until:
            line = next(lines)
            if line.startswith("data: "):
                sample = json.loads(line.removeprefix("data: "))
                records += sample["records_in"] * 2  # s between two samples, about
                assert sample["redis"] > 0
    assert records >= 900


def test_connections(server: KetchServer, visitor: Visitor) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g", "client.id": "who-is-it"})
    consumer.list_topics(timeout=LIMIT)
    rows = [row for row in visitor.get("/clients", q="who-is-it").table() if len(row) > 1]
    assert rows
    assert rows[0][1:5] == ["who-is-it", "User:ANONYMOUS", "PLAINTEXT", rows[0][4]]
    assert rows[0][4].startswith("confluent-kafka-python")
    consumer.close()


def test_settings_without_secrets(start_ketch: StartKetch, tmp_path: Path) -> None:
    (tmp_path / "ketch.toml").write_text('ssl_key_password = "hidden-1"\nretention_ms = 1234567\n')
    server = start_ketch("--http-port", "0", "--console", "--config", str(tmp_path / "ketch.toml"))
    page = Visitor.of(server).get("/settings")
    assert "hidden-1" not in page.text
    own = re.findall(r'<tr class="own"><td><code>(\w+)</code></td><td class="mono wrap">([^<]*)</td>', page.text)
    assert ("retention_ms", "1234567") in own
    assert ("ssl_key_password", "(set)") in own


def test_an_archive_that_stands_still_needs_attention_while_records_wait(start_ketch: StartKetch) -> None:
    server = start_ketch("--http-port", "0", "--console", "--archive-stall-ms", "60000")
    now = int(time.time() * 1000)
    ages = {"waits": 90_000, "waits-shortly": 0, "done": 90_000}  # ms
    for name, age in ages.items():
        create(server, name, offset_ids="dense")
        produce(server, name, [(b"k", b"v")] * 3)
        through = 3 if name == "done" else 2
        archived = {"metadata": "file:///m", "updated": now - age, "start:0": 0, "through:0": through}
        server.redis().hset(f"korvet:archive:{name}", mapping=archived)
    create(server, "without")
    produce(server, "without", [(b"k", b"v")])
    alerts = re.findall(r"<strong>archive stands still</strong> (.*?)<br>", Visitor.of(server).get("/").text)
    assert [re.sub(r"[\d.]+ (s|min)", "TIME", alert) for alert in alerts] == [
        "nothing of waits was archived for TIME, and records wait"
    ]


def test_what_needs_attention(start_ketch: StartKetch) -> None:
    server = start_ketch("--http-port", "0", "--console")
    server.redis().config_set("appendonly", "no")
    page = Visitor.of(server).get("/")
    assert re.search(r'<li class="(warn|fail)"><strong>persistence</strong>', page.text)
    assert ">none</span>" in page.text
