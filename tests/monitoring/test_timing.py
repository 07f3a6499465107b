"""How long requests took, as /metrics, the log and a collector of traces have it: brokers with the lane and without."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.batches import CODECS, batch, record, records
from tests.support.collector import Collector, Span, collector
from tests.support.http import get, metrics, url
from tests.support.kafka import FETCH, PRODUCE, Kafka, fetch, part, produce
from tests.support.ketch import KetchServer, eventually

PARTS = ("queue", "redis", "wait", "send")
SLOW_MS = 400
StartKetch = Callable[..., KetchServer]
SERVE = ("--http-port", "0", "--slow-request-ms", str(SLOW_MS), "--default-storage-layout", "batch")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    options = (*SERVE, "--metrics-topics-max", "3")
    made = KetchServer(tmp_path_factory.mktemp("timing"), *options).start()
    yield made
    assert made.stop() == 0, made.log


@pytest.fixture(scope="module")
def traces() -> Iterator[Collector]:
    with collector() as made:
        yield made


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, traces: Collector) -> Iterator[KetchServer]:
    options = (*SERVE, "--log-format", "json", "--otlp-endpoint", traces.url)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")  # ms until spans are sent
        made = KetchServer(tmp_path_factory.mktemp("traced"), *options).start()
    yield made
    assert made.stop() == 0, made.log


@pytest.fixture
def kafka(server: KetchServer) -> Iterator[Kafka]:
    client = Kafka(server.port, client_id="timing")
    yield client
    client.close()


def samples(server: KetchServer, name: str) -> list[Sample]:
    code, text = get(f"{url(server)}/metrics")
    assert code == 200
    families = text_string_to_metric_families(text)
    return [sample for family in families for sample in family.samples if sample.name == name]


def value(server: KetchServer, name: str, **labels: str) -> float:
    return sum(sample.value for sample in samples(server, name) if labels.items() <= sample.labels.items())


def test_every_request_is_in_the_histograms_and_its_parts_make_the_whole(server: KetchServer, kafka: Kafka) -> None:
    kafka.create("counted")
    for _ in range(20):
        kafka.stored("counted", batch(records([b"x"])))
    assert kafka.fetch("counted", 1 << 60, max_wait=100).error_code == 1  # OFFSET_OUT_OF_RANGE
    end = kafka.list_offsets("counted", -1).offset
    kafka.ask(FETCH, 12, **fetch([part("counted", 0, end)], max_wait=300))
    for request, least in (("produce", 20), ("fetch", 2), ("create_topics", 1), ("list_offsets", 1)):
        count = value(server, "ketch_request_total_time_seconds_count", request=request)
        assert count == value(server, "ketch_requests_total", request=request) >= least
        whole = value(server, "ketch_request_total_time_seconds_sum", request=request)
        parts = sum(value(server, f"ketch_request_{name}_time_seconds_sum", request=request) for name in PARTS)
        assert parts == pytest.approx(whole)
    assert value(server, "ketch_lane_requests_total", request="produce") > 0
    assert value(server, "ketch_append_latency_seconds_count", topic="counted") == 20
    assert value(server, "ketch_request_wait_time_seconds_count", request="fetch") == 1
    assert value(server, "ketch_request_wait_time_seconds_sum", request="fetch") >= 0.2


def test_requests_without_an_answer_are_counted_when_they_are_stored(server: KetchServer, kafka: Kafka) -> None:
    kafka.create("unanswered")
    kafka.stored("unanswered", batch(records([b"x"])))
    before = value(server, "ketch_append_latency_seconds_count", topic="unanswered")
    for _ in range(3):
        kafka.send(PRODUCE, 9, **produce("unanswered", batch(records([b"x"])), acks=0))
    eventually(lambda: value(server, "ketch_append_latency_seconds_count", topic="unanswered") == before + 3)


def test_topics_beyond_the_bound_are_summed(server: KetchServer, kafka: Kafka) -> None:
    before = value(server, "ketch_messages_in_total")
    for n in range(6):
        kafka.create(f"many-{n}")
        for _ in range(2):  # by Python, and by the lane
            kafka.stored(f"many-{n}", batch(records([b"x"] * 2)))
    named = {sample.labels["topic"] for sample in samples(server, "ketch_messages_in_total")}
    assert len(named) == 4
    assert "(other)" in named
    assert value(server, "ketch_messages_in_total") == before + 24
    latencies = {sample.labels["topic"] for sample in samples(server, "ketch_append_latency_seconds_count")}
    assert latencies == named


def test_redis_is_timed_by_node_and_connection(server: KetchServer, kafka: Kafka) -> None:
    kafka.metadata()
    for name in ("write", "read"):
        commands = value(server, "ketch_redis_commands_total", connection=name)
        timed = value(server, "ketch_redis_command_seconds_count", connection=name)
        assert 0 < timed <= commands
        assert value(server, "ketch_redis_pipeline_depth_sum", connection=name) >= timed
        (node,) = {sample.labels["node"] for sample in samples(server, "ketch_redis_commands_total")}
        assert node


def test_what_runs_and_how_busy_it_is(server: KetchServer) -> None:
    (kernel,) = samples(server, "ketch_kernel_info")
    assert kernel.labels["lane"] == "on"
    assert kernel.labels["append"] == "module"
    assert {kernel.labels[name] for name in ("metrics", "records", "wire")} <= {"cython", "python"}
    assert [sample.value for sample in samples(server, "ketch_build_info")] == [1]
    eventually(lambda: value(server, "ketch_event_loop_delay_seconds_count") > 1)


@contextmanager
def paused(server: KetchServer, seconds: float) -> Iterator[None]:
    """Redis takes no writes for so long from now on."""
    redis = server.redis()
    redis.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
    timer = threading.Timer(seconds, redis.execute_command, ("CLIENT", "UNPAUSE"))
    timer.start()
    try:
        yield
    finally:
        timer.join()


SLOW = re.compile(
    r"WARNING ketch\.broker\.timekeeper: timing at 127\.0\.0\.1:(\d+): slow request: Produce v9 took (\d+) ms: "
    r"queue (\d+) ms, redis (\d+) ms, send (\d+) ms\n"
)


def test_a_slow_request_has_a_line_that_says_where_the_time_went(server: KetchServer, kafka: Kafka) -> None:
    kafka.create("slow")
    for _ in range(3):  # so that the lane takes it
        kafka.stored("slow", batch(records([b"x"])))
    before = metrics(server)
    with paused(server, 0.8):
        kafka.stored("slow", batch(records([b"x"])))
    ((port, took, queue, redis, send),) = eventually(lambda: SLOW.findall(server.log))
    assert int(port) == kafka.socket.getsockname()[1]
    assert int(took) >= int(redis) >= SLOW_MS
    assert int(queue) + int(send) < int(redis)
    after = metrics(server)
    assert after["ketch_slow_requests_total", "produce"] == before.get(("ketch_slow_requests_total", "produce"), 0) + 1
    assert after["ketch_lane_requests_total", "produce"] == before["ketch_lane_requests_total", "produce"] + 1


def test_a_fetch_that_waits_for_records_is_not_slow(server: KetchServer, kafka: Kafka) -> None:
    kafka.create("idle")
    kafka.ask(FETCH, 12, **fetch([part("idle", 0, 0)], max_wait=2 * SLOW_MS))
    assert "slow request: Fetch" not in server.log


# -- with JSON and traces


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def header(trace: str = TRACE, parent: str = PARENT, flags: str = "01") -> list[tuple[bytes, bytes | None]]:
    return [(b"a", b"b"), (b"traceparent", f"00-{trace}-{parent}-{flags}".encode())]


def spans(traces: Collector, topic: str, least: int) -> list[Span]:
    """Those of a topic, once there are so many."""

    def found() -> list[Span]:
        return [each for each in traces.spans if each.attributes["messaging.destination.name"] == topic]

    eventually(lambda: len(found()) >= least, what=f"{least} spans")
    return found()


@pytest.fixture
def client(traced: KetchServer) -> Iterator[Kafka]:
    made = Kafka(traced.port, client_id="timing")
    yield made
    made.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", ["record", "batch"])
def test_spans_of_both_ways_go_on_with_the_clients_trace(
    client: Kafka, traces: Collector, codec: str, layout: str
) -> None:
    name = f"traced-{layout}-{codec}"
    client.create(name, storage_layout=layout)
    data = [record(b"x" * 100, headers=header(), offset_delta=n) for n in range(3)]
    base = client.stored(name, batch(data, codec=CODECS[codec]))
    assert client.fetch(name, base).records
    sent, given = sorted(spans(traces, name, 2), key=lambda each: each.end)
    assert [sent.name, given.name] == [f"produce {name}", f"fetch {name}"]
    for span in (sent, given):
        assert (span.trace, span.parent) == (TRACE, PARENT)
        assert 0 < span.begin <= span.end
        assert span.attributes["messaging.destination.partition.id"] == "0"
        assert span.attributes["messaging.kafka.offset"] == base
        assert span.attributes["messaging.batch.message_count"] == 3
        assert span.attributes["messaging.client.id"] == "timing"
        assert span.attributes["ketch.redis_ms"] > 0
        assert span.resource["service.name"] == "ketch"


def test_a_span_for_each_trace_and_none_for_what_is_not_sampled(client: Kafka, traces: Collector) -> None:
    client.create("several")
    headers = [header(parent="1" * 16), header(parent="2" * 16), header(flags="00"), header(trace="0" * 32), []]
    data = [record(b"x", headers=each, offset_delta=n) for n, each in enumerate(headers)]
    client.stored("several", batch(data))
    client.stored("several", batch([record(b"x", headers=header(parent="3" * 16))]))
    found = {each.parent for each in spans(traces, "several", 3)}
    assert found == {"1" * 16, "2" * 16, "3" * 16}


def test_a_request_has_so_many_spans_at_most(client: Kafka, traces: Collector) -> None:
    client.create("crowd")
    data = [record(b"x", headers=header(parent=f"{n + 1:016x}"), offset_delta=n) for n in range(500)]
    client.stored("crowd", batch(data))
    client.stored("crowd", batch([record(b"x", headers=header(parent="f" * 16))]))
    eventually(lambda: any(each.parent == "f" * 16 for each in traces.spans))
    assert len(spans(traces, "crowd", 101)) == 101


def test_what_was_refused_is_an_error(client: Kafka, traces: Collector) -> None:
    client.create("refused", message_timestamp_after_max_ms=1000)
    far = batch([record(b"x", headers=header())], base_timestamp=9_000_000_000_000)
    assert client.produce("refused", far).error_code == 32  # INVALID_TIMESTAMP
    (span,) = spans(traces, "refused", 1)
    assert span.error == span.attributes["error.type"] == "INVALID_TIMESTAMP"


def test_a_slow_request_in_json(traced: KetchServer, client: Kafka) -> None:
    client.create("slow")
    client.stored("slow", batch(records([b"x"])))
    with paused(traced, 0.8):
        client.stored("slow", batch(records([b"x"])))
    eventually(lambda: "slow request" in traced.log)
    lines = [json.loads(line) for line in traced.log.splitlines()]
    (slow,) = [line for line in lines if "slow request" in line["message"]]
    assert {key: slow[key] for key in ("level", "client", "api", "version")} == {
        "level": "WARNING",
        "client": "timing",
        "api": "Produce",
        "version": 9,
    }
    assert slow["address"] == "{}:{}".format(*client.socket.getsockname())
    assert slow["total_ms"] >= slow["redis_ms"] >= SLOW_MS
    assert sum(slow[f"{part}_ms"] for part in PARTS) == pytest.approx(slow["total_ms"], abs=1)
    assert lines[0]["logger"] == "ketch", "the ready line is JSON, too"


def test_without_a_collector_the_broker_works_and_stops(start_ketch: StartKetch, tmp_path: Path) -> None:
    server = start_ketch("--otlp-endpoint", "http://127.0.0.1:1")
    client = Kafka(server.port)
    client.create("t")
    client.stored("t", batch([record(b"x", headers=header())]))
    client.close()
    assert server.stop() == 0
    assert "Traceback" not in server.log
    assert server.log.count("the collector at http://127.0.0.1:1 takes no spans, they are dropped\n") == 1
