"""Groups and transactions. Their names are the clients' to choose, so the series are bounded."""

from __future__ import annotations

from prometheus_client import Counter

from ketch.metrics.tally import OTHER

_commits = Counter("ketch_group_commits", "Offsets committed", ["group", "topic"])
_transactions = Counter("ketch_transactions", "Transactions that this broker has finished", ["result"])
_rebalances = Counter("ketch_group_rebalances", "Generations begun", ["group"])
_deliveries = Counter(
    "ketch_group_deliveries",
    "Records given to members; tracked ones are in XPENDING until they are committed (group_pending_max)",
    ["group", "topic", "tracked"],
)


class _Bounded:
    """The children of a counter: so many, and one for all others."""

    _MOST = 1_000

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._children: dict[tuple[str, ...], Counter] = {}

    def __call__(self, *labels: str) -> Counter:
        child = self._children.get(labels)
        if child is None:
            known = labels if len(self._children) < self._MOST else (OTHER,) * len(labels)
            child = self._children[known] = self._counter.labels(*known)
        return child


_commit, _rebalance, _delivery = _Bounded(_commits), _Bounded(_rebalances), _Bounded(_deliveries)


def committed(group: str, topic: str, partitions: int) -> None:
    """Offsets of so many partitions were committed."""
    _commit(group, topic).inc(partitions)


def transaction_ended(commit: bool) -> None:
    """All markers of a transaction are written."""
    _transactions.labels("commit" if commit else "abort").inc()


def rebalanced(group: str) -> None:
    """A generation has begun."""
    _rebalance(group).inc()


def delivered(group: str, topic: str, records: int, tracked: bool) -> None:
    """A member was given records."""
    _delivery(group, topic, "yes" if tracked else "no").inc(records)
