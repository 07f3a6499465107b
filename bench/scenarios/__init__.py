"""What is measured, in the order of the report."""

from __future__ import annotations

from bench.model import Scenario
from bench.scenarios.throughput import Throughput

SCENARIOS: tuple[Scenario, ...] = (Throughput(),)
