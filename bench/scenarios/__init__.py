"""All scenarios, in the order of the details page."""

from __future__ import annotations

from bench.scenarios.backlog import Backlog
from bench.scenarios.base import Scenario
from bench.scenarios.crowd import Fanout, Idle, Slow
from bench.scenarios.groups import Groups
from bench.scenarios.latency import Latency
from bench.scenarios.legacy import Legacy
from bench.scenarios.partitions import Partitions
from bench.scenarios.rebalance import Rebalance
from bench.scenarios.requests import Requests
from bench.scenarios.secured import Secured
from bench.scenarios.shards import Shards
from bench.scenarios.shares import Shares
from bench.scenarios.spark import Spark
from bench.scenarios.startup import Startup
from bench.scenarios.throughput import Throughput
from bench.scenarios.timing import Timing
from bench.scenarios.transactions import Transactions

SCENARIOS: tuple[Scenario, ...] = (
    Throughput(),
    Legacy(),
    Groups(),
    Rebalance(),
    Shares(),
    Latency(),
    Requests(),
    Timing(),
    Transactions(),
    Fanout(),
    Idle(),
    Slow(),
    Secured(),
    Partitions(),
    Backlog(),
    Startup(),
    Shards(),
    Spark(),
)
