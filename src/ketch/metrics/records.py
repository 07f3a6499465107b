"""What goes in and out: records, bytes, reads of the archive, and the latency of appends, most of it by topic."""

from __future__ import annotations

from functools import cache

from prometheus_client import Counter

from ketch.metrics.histogram import Histogram
from ketch.metrics.tally import OTHER, Histograms, Names, Tally

topics = Names(200)  # by the setting metrics_topics_max

messages_in = Tally("ketch_messages_in", "Records produced", "topic", topics)
bytes_in = Tally("ketch_bytes_in", "Bytes of record batches produced", "topic", topics)
bytes_out = Tally("ketch_bytes_out", "Bytes of record batches fetched", "topic", topics)
# RemoteFetchRequestsPerSec, RemoteFetchBytesPerSec and RemoteFetchErrorsPerSec of KIP-405.
_remote_requests = Counter("ketch_remote_fetch_requests", "Reads of the archive for fetches", ["topic"])
_remote_bytes = Counter("ketch_remote_fetch_bytes", "Bytes of record batches fetched from the archive", ["topic"])
_remote_errors = Counter("ketch_remote_fetch_errors", "Reads of the archive that failed", ["topic"])
_append_latency = Histograms("ketch_append_latency_seconds", "From a Produce received to its answer", "topic")
appends_refused = Counter("ketch_appends_refused", "Batches sent again because another writer came in between")
writes_refused = Counter("ketch_writes_refused", "Requests refused because Redis takes no writes (maxmemory)")


def limit_topics(most: int) -> None:
    """From now on so many topics have series of their own; those that have some already keep them."""
    topics.most = most


def produced(topic: str, records: int, size: int) -> None:
    """A batch was taken in."""
    messages_in.counts[topic] += records
    bytes_in.counts[topic] += size


def fetched(topic: str, size: int) -> None:
    """Batches were sent out."""
    bytes_out.counts[topic] += size


class _Latencies(dict[str, Histogram]):
    def __missing__(self, topic: str) -> Histogram:
        label = topics[topic]
        found = _append_latency.of(label)
        if label is not OTHER:
            self[topic] = found
        return found


append_latency = _Latencies()  # of a topic's appends, by its name


@cache
def _remote(label: str) -> tuple[Counter, Counter, Counter]:
    return _remote_requests.labels(label), _remote_bytes.labels(label), _remote_errors.labels(label)


def remote_fetched(topic: str, size: int | None) -> None:
    """The archive was read for a fetch; `size` is None where that failed."""
    requests, total, errors = _remote(topics[topic])
    requests.inc()
    if size is None:
        errors.inc()
    else:
        total.inc(size)
