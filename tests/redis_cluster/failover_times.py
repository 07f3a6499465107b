"""How long nobody is acknowledged when a master of Redis dies: `python -m tests.redis_cluster.failover_times`.

A producer of confluent-kafka with its default settings writes a record every 5 ms to one partition. The partition's
master is killed, or stopped (SIGSTOP), again and again; printed is the time from then to the next acknowledgement.
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


def gap(writer: Writer, hurt: Callable[[], None]) -> float:
    """Seconds from the fault to the next acknowledgement of what had none before it."""
    writer.goes_on()
    hurt()
    begin = time.monotonic()
    eventually(lambda: writer.acked[-1] > begin + 0.05, LIMIT, "an acknowledgement")
    return next(at for at in writer.acked if at > begin + 0.05) - begin


def times(url: str, copies: int, times_: int, directory: Path, fault: Callable[[Writer], float]) -> list[float]:
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


def of_cluster(how: str, copies: int, count: int, node_timeout: int, directory: Path) -> list[float]:
    with RedisCluster(directory / "redis", replicas=max(1, copies), module=True, node_timeout=node_timeout) as cluster:

        def fault(writer: Writer) -> float:
            master = cluster.owner(slot(STREAM.encode()))
            found = gap(writer, lambda: (cluster.kill if how == "kill -9" else cluster.pause)(master))
            heir = cluster.wait_failed_over(master)
            (cluster.restart if how == "kill -9" else cluster.resume)(master)
            eventually(lambda: master.says("replication", "master_link_status:up"), LIMIT, "the old master to follow")
            assert heir.is_master
            return found

        return times(cluster.url, copies, count, directory / "ketch", fault)


def of_sentinel(how: str, copies: int, count: int, down_after: int, directory: Path) -> list[float]:
    with Sentinels(directory / "redis", replicas=max(1, copies), down_after=down_after) as sentinels:

        def fault(writer: Writer) -> float:
            master = sentinels.master()
            found = gap(writer, master.kill if how == "kill -9" else master.pause)
            sentinels.wait_master(master)
            (master.start if how == "kill -9" else master.resume)()
            _wait_for_replica(master)
            return found

        return times(sentinels.url, copies, count, directory / "ketch", fault)


def _wait_for_replica(node: Node) -> None:
    eventually(lambda: node.says("replication", "master_link_status:up"), LIMIT, "the old master to follow")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--timeout", type=int, default=1000, help="ms: cluster-node-timeout, down-after-milliseconds")
    options = parser.parse_args()
    for kind, measure in {"cluster": of_cluster, "sentinel": of_sentinel}.items():
        for how in ("kill -9", "SIGSTOP"):
            for copies in (1, 2):
                with ExitStack() as stack:
                    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                    found = sorted(measure(how, copies, options.times, options.timeout, directory))
                shown = ", ".join(f"{each:.2f}" for each in found)
                print(f"{kind}, {how}, {copies} copies: median {median(found):.2f} s of {shown}", flush=True)


if __name__ == "__main__":
    main()
