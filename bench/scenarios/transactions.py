"""Transactions (KIP-98): how fast they are produced, and how soon a reader of committed records has one."""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar

from bench import tools
from bench.contestants import Server
from bench.model import Run, Sample, Target
from bench.processes import await_quiet, settle
from bench.scenarios.base import Scenario

PRODUCED = "1 KB, transactions of 100 ms"
ALONE = "100 B, one transaction at a time"


class Transactions(Scenario):
    """Kafka's own Java tool, and librdkafka at both ends."""

    name: ClassVar[str] = "transactions"
    title: ClassVar[str] = "Transactions"
    note: ClassVar[str] = (
        "Transactions of 100 ms: ProducerPerformance with --transaction-duration-ms 100, as fast as it can. One at a "
        "time: a Python program with confluent-kafka begins a transaction, produces a record, commits, and waits until "
        "its consumer with isolation.level=read_committed has it; the time is that from the beginning on."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch", "kafka")
    targets: ClassVar[tuple[Target, ...]] = (
        Target("ketch-batch", "rate", least=1.0, loads=PRODUCED, clients="java", to="kafka"),
        *(
            Target("ketch-batch", name, most=1.0, loads=ALONE, clients="confluent", to="kafka")
            for name in ("p50", "p99")
        ),
    )

    def labels(self, contestant: str) -> list[str]:
        return [f"{PRODUCED}/java", f"{ALONE}/confluent"]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        server.create("transactions-produced", "transactions-alone")
        if run.wants(f"{PRODUCED}/java"):
            settle(server.pid)
            count = run.count(400_000, 50_000)
            found = tools.producer_performance(server.kafka, "transactions-produced", 1000, count, transaction_ms=100)
            yield from (Sample(PRODUCED, "java", name, found[name]) for name in ("rate", "p99"))
        if run.wants(f"{ALONE}/confluent"):
            await_quiet(server.pid)
            counts = {"warm": run.count(200, 50), "count": run.count(2000, 300)}
            found = tools.python("transactions", server=server.kafka, topic="transactions-alone", **counts)
            yield from (Sample(ALONE, "confluent", name, found[name]) for name in ("p50", "p99"))
        server.delete("transactions-produced", "transactions-alone")
