"""What /metrics shows of things that brokers share: each once, bounded, and gone while Redis is."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from tests.support.brokers import acquainted
from tests.support.http import get, url
from tests.support.ketch import KetchServer, eventually

LIMIT = 20
StartKetch = Callable[..., KetchServer]


def samples(server: KetchServer, name: str) -> dict[tuple[str, ...], float]:
    """Values by the labels' values, in the order of the labels' names."""
    code, text = get(f"{url(server)}/metrics?name[]={name}")
    assert code == 200
    families = text_string_to_metric_families(text)
    return {
        tuple(each.labels[label] for label in sorted(each.labels)): each.value
        for family in families
        for each in family.samples
        if each.name == name
    }


def made(server: KetchServer, **topics: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for future in admin.create_topics([NewTopic(name, count) for name, count in topics.items()]).values():
        future.result(LIMIT)


def test_two_brokers_show_each_partition_once(start_ketch: StartKetch) -> None:
    first = start_ketch("--http-port", "0", "--node-id", "1")
    address = f"redis://127.0.0.1:{first.redis_port}"
    second = start_ketch("--http-port", "0", "--node-id", "2", "--redis", address)
    acquainted(2, first, second)
    made(first, shared=12)

    def once() -> bool:
        seen = Counter(place for server in (first, second) for place in samples(server, "ketch_partition_entries"))
        return seen == {(str(n), "shared"): 1 for n in range(12)}

    eventually(once, LIMIT, "each partition at one broker")
    led = [samples(server, "ketch_partitions_led")[()] for server in (first, second)]
    assert sum(led) == 12
    assert all(led)
    assert [[*samples(server, "ketch_redis_up").values()] for server in (first, second)] == [[1], [1]]


def test_what_is_beyond_the_bound_is_summed(start_ketch: StartKetch) -> None:
    server = start_ketch("--http-port", "0", "--metrics-partitions-max", "3")
    made(server, a=2, b=5)
    eventually(lambda: samples(server, "ketch_metrics_left_out").get(("partitions",)) == 4, LIMIT)
    assert samples(server, "ketch_partition_entries") == {
        ("0", "a"): 0, ("1", "a"): 0, ("0", "b"): 0, ("", "(other)"): 0
    }  # fmt: skip
    assert set(samples(server, "ketch_partition_log_end_offset")) == {("0", "a"), ("1", "a"), ("0", "b")}
    assert samples(server, "ketch_topics") == {(): 2}


def test_a_redis_that_hangs_or_is_gone_holds_up_no_scrape(start_ketch: StartKetch) -> None:
    server = start_ketch("--http-port", "0", "--redis-timeout-ms", "2000")
    made(server, there=1)
    (node,) = eventually(lambda: samples(server, "ketch_redis_up"), LIMIT)
    pid = int(server.redis().info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: samples(server, "ketch_redis_up") == {node: 0}, LIMIT, "that Redis does not answer")
        assert samples(server, "ketch_partition_entries") == {}
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: samples(server, "ketch_redis_up") == {node: 1}, LIMIT)
    eventually(lambda: samples(server, "ketch_partition_entries"), LIMIT)
