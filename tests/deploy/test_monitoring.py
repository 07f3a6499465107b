"""deploy/prometheus and deploy/grafana against a real Prometheus that scrapes a real broker: every expression of the
dashboard and of the alert rules gives data, and the numbers are those that the clients counted.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.http import metrics, url
from tests.support.ketch import KetchServer, eventually
from tests.support.prometheus import CONFIG, DEPLOY, MISSING, RULES, Prometheus

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

LIMIT = 20.0
DASHBOARD = DEPLOY / "grafana/dashboards/ketch.json"
TOPICS = {"orders": {}, "events": {"storage.layout": "batch"}, "numbers": {"offset.ids": "dense"}, "cold": {}}
PARTITIONS = 2


def panels() -> dict[str, list[str]]:
    """Expressions by the title of their panel."""
    shown = [each for each in json.loads(DASHBOARD.read_text())["panels"] if each["type"] != "row"]
    found = {each["title"]: [target["expr"] for target in each["targets"]] for each in shown}
    assert len(found) == len(shown), "two panels have one title"
    return found


def rules() -> dict[str, str]:
    return {
        rule["alert"]: rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    }


def filled(expression: str) -> str:
    """A panel's expression as Grafana sends it: with its variables' values."""
    return re.sub(r"\$(instance|topic|group|node)\b", ".*", expression).replace("$__rate_interval", "30s")


def uncompared(expression: str) -> str:
    """An alert's expression that says for each thing whether it holds, rather than for which things."""
    return re.sub(r"(==|!=|<=|>=|<|>)(?= )", r"\1 bool", expression)


@dataclass
class Load:
    """What the clients did.

    Attributes:
        produced: records that were acknowledged, by topic.
        committed: records that the group has read and committed, by topic.
    """

    server: KetchServer
    produced: dict[str, int] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)

    def produce(self, topic: str, count: int) -> None:
        def told(error: object, message: object) -> None:
            assert error is None
            self.produced[topic] = self.produced.get(topic, 0) + 1

        producer = Producer({"bootstrap.servers": self.server.bootstrap, "linger.ms": 5})
        for n in range(count):
            producer.produce(topic, b"%d" % n, key=b"%d" % n, on_delivery=told)
            producer.poll(0)
        assert producer.flush(LIMIT) == 0

    def consume(self, consumer: Consumer, topic: str, count: int) -> None:
        """Reads so many records one by one, and commits where it stands on each partition, read or not."""
        consumer.subscribe([topic])
        places = [TopicPartition(topic, n) for n in range(PARTITIONS)]
        known = {each.partition: each.offset for each in consumer.committed(places, LIMIT)}
        behind = {n: known[n] if known[n] >= 0 else consumer.get_watermark_offsets(places[n])[0] for n in known}
        for _ in range(count):
            message = eventually(lambda: consumer.poll(1.0), LIMIT)
            assert (message.error(), message.topic()) == (None, topic)
            behind[message.partition()] = message.offset() + 1
        consumer.commit(offsets=[TopicPartition(topic, *place) for place in behind.items()], asynchronous=False)
        self.committed[topic] = self.committed.get(topic, 0) + count


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    options = ("--http-port", "0", "--slow-request-ms", "1")
    server = KetchServer(tmp_path_factory.mktemp("watched"), *options).start()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    made = admin.create_topics([NewTopic(name, PARTITIONS, config=configs) for name, configs in TOPICS.items()])
    for future in made.values():
        future.result(LIMIT)
    server.redis().config_set("maxmemory", "1gb")
    yield Load(server)
    server.stop()
    server.close()


@pytest.fixture(scope="module")
def prometheus(load: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), [url(load.server).removeprefix("http://")])
    yield server
    server.stop()


@pytest.fixture(scope="module")
def member(load: Load, prometheus: Prometheus) -> Iterator[Consumer]:
    """A member of the group that has read a part of each topic, and does not go on; what it did is in `load`."""
    for topic in TOPICS:
        load.produce(topic, 600)
    consumer = Consumer(
        {
            "bootstrap.servers": load.server.bootstrap,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "fetch.wait.max.ms": 100,
        }
    )
    eventually(lambda: prometheus.query("ketch_partition_entries"), what="a scrape")  # rates begin with a first value
    for topic, count in (("orders", 200), ("events", 300), ("numbers", 400), ("orders", 150)):
        load.produce(topic, 100)
        load.consume(consumer, topic, count)
    _lose_the_archive(load)
    yield consumer
    consumer.close()


def _lose_the_archive(load: Load) -> None:
    """A topic whose first records are in an archive that cannot be read."""
    redis = load.server.redis()
    ends = {
        n: int(redis.xinfo_stream(f"korvet:stream:cold:{n}")["last-generated-id"].split(b"-")[0]) << 10
        for n in range(PARTITIONS)
    }
    announced = {"table": "cold", "metadata": "file:///nowhere/m.json", "updated": int(time.time() * 1000)}
    ranges = {f"{what}:{n}": offset for n, end in ends.items() for what, offset in (("start", 0), ("through", end))}
    redis.hset("korvet:archive:cold", mapping={**announced, **ranges})
    redis.xtrim("korvet:stream:cold:0", maxlen=0, approximate=False)
    consumer = Consumer({"bootstrap.servers": load.server.bootstrap, "group.id": "cold", "enable.auto.commit": False})
    consumer.assign([TopicPartition("cold", 0, 1)])
    eventually(lambda: _failed(load, consumer), what="a fetch of the archive to fail")
    consumer.close()


def _failed(load: Load, consumer: Consumer) -> bool:
    consumer.poll(0.1)
    return metrics(load.server).get(("ketch_remote_fetch_errors_total", "cold"), 0) > 0


def test_promtool_accepts_rules_and_configuration() -> None:
    for command in (["check", "config", str(CONFIG)], ["check", "rules", str(RULES)]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_that_are_to_be_raised_are() -> None:
    """On series that are made up, in deploy's own rules."""
    done = subprocess.run(
        ["promtool", "test", "rules", str(Path(__file__).parent / "alerts.yml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _numbers(prometheus: Prometheus, expression: str) -> list[float]:
    """The values but for NaN, which is a latency where there were no requests."""
    return [value for _, value in prometheus.query(expression) if value == value]


@pytest.mark.parametrize("title", panels())
def test_every_panel_shows_data(load: Load, prometheus: Prometheus, member: Consumer, title: str) -> None:
    for expression in map(filled, panels()[title]):
        eventually(partial(_numbers, prometheus, expression), LIMIT, f"{title}: {expression}")


@pytest.mark.parametrize("name", rules())
def test_every_alert_looks_at_data(load: Load, prometheus: Prometheus, member: Consumer, name: str) -> None:
    expression = uncompared(rules()[name])
    assert expression != rules()[name]
    eventually(lambda: prometheus.query(expression), LIMIT, f"{name}: {expression}")


def by(label: str, found: list[tuple[dict[str, str], float]]) -> dict[str, float]:
    return {labels[label]: value for labels, value in found}


def counted(title: str, at: int = 0) -> str:
    """A panel's expression over what is counted rather than over its rate."""
    return re.sub(r"rate\(([^()]*)\[[^]]*\]\)", r"\1", filled(panels()[title][at].replace("$__rate_interval", "30s")))


def test_the_dashboards_numbers_are_those_of_the_clients(load: Load, prometheus: Prometheus, member: Consumer) -> None:
    behind = {topic: load.produced[topic] - count for topic, count in load.committed.items()}

    def same(title: str, label: str, expected: dict[str, Any]) -> None:
        def seen() -> bool:
            found = by(label, prometheus.query(counted(title)))
            return {name: found.get(name) for name in expected} == expected

        eventually(seen, LIMIT, f"{title}: {expected}, not {prometheus.query(counted(title))}")

    assert load.produced == {"orders": 800, "events": 700, "numbers": 700, "cold": 600}
    assert behind == {"orders": 450, "events": 400, "numbers": 300}
    same("Records in", "topic", load.produced)
    same("Lag in records", "topic", behind)
    same("Entries in Redis", "topic", {"orders": 800, "numbers": 700})
    same("Members", "group", {"billing": 1})
    assert prometheus.query(counted("Records in", 0).replace("sum by (topic) ", "sum"))[0][1] == 2800
    lag = prometheus.query('sum(ketch_group_lag_records{group="billing"})')
    assert lag == [({}, sum(behind.values()))]


def test_lag_goes_to_zero_when_the_member_goes_on(load: Load, prometheus: Prometheus, member: Consumer) -> None:
    for topic in load.committed:
        load.consume(member, topic, load.produced[topic] - load.committed[topic])
    expression = filled(panels()["Lag in records"][0])
    eventually(lambda: {value for _, value in prometheus.query(expression)} == {0.0}, LIMIT)
    expression = filled(panels()["Lag in seconds"][0])
    eventually(lambda: {value for _, value in prometheus.query(expression)} == {0.0}, LIMIT)
    assert not prometheus.alerts().keys() & {"KetchBrokerDown", "KetchRedisDown", "KetchNoAppendOnlyFile"}


def test_everything_that_compose_mounts_is_there() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    mounted = [each.split(":")[0] for service in services.values() for each in service.get("volumes", ())]
    ours = [each for each in mounted if each.startswith(".")]
    assert ours
    assert all((DEPLOY / each).exists() for each in ours)


def test_every_metric_that_is_asked_for_is_documented() -> None:
    documented = set(re.findall(r"`(ketch_\w+|process_\w+)", (DEPLOY.parent / "docs/metrics.md").read_text()))
    asked = " ".join([*rules().values(), *(each for found in panels().values() for each in found)])
    named = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\b(?:ketch|process)_\w+", asked)}
    assert named <= documented, named - documented
