"""The connections to Redis: commands, their round trips, and how many are on their way. `redis.pipe` counts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily

from ketch.metrics.histogram import Histogram, Trips
from ketch.metrics.tally import DEPTH, LATENCY, OTHER, Histograms

_MOST = 1_000  # nodes with their connections; a cluster whose nodes come and go has new ones for ever

_LABELS = ("node", "connection")
_command = Histograms("ketch_redis_command_seconds", "Round trips of commands, one at a time", *_LABELS)
_depth = Histograms("ketch_redis_pipeline_depth", "Commands on their way with it", *_LABELS, bounds=DEPTH)


class _Pipes:
    """All of them, as prometheus_client's collector of their commands."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], Trips] = {}
        REGISTRY.register(self)

    def of(self, node: str, connection: str) -> Trips:
        key = (node, connection)
        if key not in self._tallies:
            if len(self._tallies) >= _MOST:
                key = (OTHER, connection)
            self._tallies.setdefault(key, Trips(_command.of(*key), _depth.of(*key)))
        return self._tallies[key]

    def collect(self) -> Iterator[CounterMetricFamily]:
        """For prometheus_client."""
        family = CounterMetricFamily("ketch_redis_commands", "Commands sent", labels=_LABELS)
        for labels, tally in self._tallies.copy().items():
            family.add_metric(labels, tally.commands)
        yield family


_pipes = _Pipes()


def pipe(node: str, connection: str) -> Trips:
    """The series of a connection.

    Args:
        node: "host:port", or the path of a socket.
        connection: what it is for.
    """
    return _pipes.of(node, connection)


@cache
def unseen() -> Trips:
    """For connections that no metric is about."""
    return Trips(Histogram(LATENCY), Histogram(DEPTH))
