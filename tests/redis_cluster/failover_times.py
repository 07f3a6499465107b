"""How long nobody is acknowledged when a master of Redis dies: `python -m tests.redis_cluster.failover_times`.

A producer of confluent-kafka with its default settings writes a record every 5 ms to one partition. The partition's
master is killed, or stopped (SIGSTOP), again and again; printed is the time from then to the
next acknowledgement, and until Redis has another master in brackets.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from confluent_kafka import KafkaError, Message, Producer

from ketch.redis.slots import slot
from tests.support.clusters import LIMIT, Node, RedisCluster, Sentinels
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually

TOPIC = "times"
Times = tuple[float, float]
STREAM = f"korvet:stream:{TOPIC}:0"


class Writer(threading.Thread):
    """Attributes: acked: s of the monotonic clock at which acknowledgements came."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.acked: list[float] = []
        self.errors: list[KafkaError] = []
        self._stopping = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})

    def run(self) -> None:
        while not self._stopping.wait(0.005):
            self._producer.produce(TOPIC, b"x", partition=0, on_delivery=self._answered)
            self._producer.poll(0)
        self._producer.flush(LIMIT)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acked.append(time.monotonic())
        else:
            self.errors.append(error)

    def goes_on(self, count: int = 50) -> None:
        before = len(self.acked)
        eventually(lambda: len(self.acked) > before + count, LIMIT, "acknowledgements")

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        assert not self.errors, self.errors


def gap(writer: Writer, hurt: Callable[[], None], others: list[Node]) -> tuple[float, float]:
    """Seconds from the fault until Redis has another master, and to the next acknowledgement."""
    writer.goes_on()
    hurt()
    begin = time.monotonic()
    eventually(lambda: any(node.is_master for node in others), LIMIT, "another master")
    elected = time.monotonic()
    eventually(lambda: writer.acked[-1] > begin + 0.05, LIMIT, "an acknowledgement")
    return elected - begin, next(at for at in writer.acked if at > begin + 0.05) - begin


def times(url: str, copies: int, times_: int, directory: Path, fault: Callable[[Writer], Times]) -> list[Times]:
    server = KetchServer(directory, "--redis", url).start()
    writer = Writer(server.bootstrap)
    try:
        with Kafka(server.port) as kafka:
            kafka.create(TOPIC, min_insync_replicas=copies)
        writer.start()
        found = [fault(writer) for _ in range(times_)]
        writer.stop()
        return found
    finally:
        server.stop()


def of_cluster(how: str, copies: int, count: int, node_timeout: int, directory: Path) -> list[Times]:
    with RedisCluster(directory / "redis", replicas=max(1, copies), module=True, node_timeout=node_timeout) as cluster:

        def fault(writer: Writer) -> Times:
            master = cluster.owner(slot(STREAM.encode()))
            others = [node for node in cluster.nodes if node.says("replication", f"master_port:{master.port}")]
            found = gap(writer, lambda: (cluster.kill if how == "kill -9" else cluster.pause)(master), others)
            eventually(lambda: cluster.owner(slot(STREAM.encode())) is not master, LIMIT, "another master")
            (cluster.restart if how == "kill -9" else cluster.resume)(master)
            master.wait_following()
            return found

        return times(cluster.url, copies, count, directory / "ketch", fault)


def of_sentinel(how: str, copies: int, count: int, down_after: int, directory: Path) -> list[Times]:
    with Sentinels(directory / "redis", replicas=max(1, copies), down_after=down_after) as sentinels:

        def fault(writer: Writer) -> Times:
            master = sentinels.master()
            others = [node for node in sentinels.nodes if node is not master]
            found = gap(writer, master.kill if how == "kill -9" else master.pause, others)
            sentinels.wait_master(master)
            (master.start if how == "kill -9" else master.resume)()
            master.wait_following()
            return found

        return times(sentinels.url, copies, count, directory / "ketch", fault)


MEASURES = {"cluster": of_cluster, "sentinel": of_sentinel}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--timeout", type=int, default=1000, help="ms: cluster-node-timeout, down-after-milliseconds")
    parser.add_argument("--kind", choices=MEASURES, action="append", help="default: both")
    options = parser.parse_args()
    for kind in options.kind or MEASURES:
        for how in ("kill -9", "SIGSTOP"):
            for copies in (1, 2):
                with ExitStack() as stack:
                    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                    found = sorted(MEASURES[kind](how, copies, options.times, options.timeout, directory))
                shown = ", ".join(f"{acked:.2f} ({elected:.2f})" for elected, acked in found)
                middle = median(acked for _, acked in found)
                print(f"{kind}, {how}, {copies} copies: median {middle:.2f} s of {shown}", flush=True)


if __name__ == "__main__":
    main()
