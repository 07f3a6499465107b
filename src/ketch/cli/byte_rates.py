"""Bytes that go in and out through brokers, by topic: the counters of their pages for Prometheus, looked at twice.

Redis does not know them. A broker says in its configs where its page is (`ketch.http`); one that has none, or whose
page cannot be reached from here, is not counted.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode, urlsplit

from ketch.configs.listeners import loopback
from ketch.errors import ConfigError, reason
from ketch.views.kafka.answers import ClientError
from ketch.views.kafka.cluster import Broker, broker_configs

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_COUNTERS = ("ketch_bytes_in_total", "ketch_bytes_out_total")
_ANSWER_S = 5.0


class Bytes(NamedTuple):
    """Bytes per second of record batches, as they cross the network."""

    into: float = 0.0
    out: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What one broker had counted.

    Attributes:
        at: s of the monotonic clock.
        counts: since it started, by counter and topic.
    """

    at: float
    counts: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates between two looks.

    Attributes:
        topics: by topic. A broker counts those beyond its `metrics_topics_max` together; they are in `total` alone.
        total: of all topics; None where no broker was counted.
        uncounted: why brokers were not counted, a phrase each.
    """

    topics: Mapping[str, Bytes]
    total: Bytes | None
    uncounted: tuple[str, ...]


class ByteRates:
    """Rates from one look to the next.

    Args:
        token_file: of the pages' token (`http_token_file`).

    Raises:
        ConfigError: it cannot be read.
    """

    def __init__(self, admin: AdminClient, token_file: Path | None) -> None:
        self._admin = admin
        self._token = None if token_file is None else _token(token_file)
        self._pages: dict[Broker, str] = {}
        self._before: dict[Broker, Seen] = {}

    def look(self, brokers: Sequence[Broker]) -> Rates:
        """The rates since the look before; a broker that was not seen then counts from now on."""
        seen: dict[Broker, Seen] = {}
        uncounted = []
        for broker in brokers:
            try:
                seen[broker] = self._see(broker)
            except ClientError as error:
                uncounted.append(f"broker {broker.id}: {error}")
        before, self._before = self._before, seen
        return Rates(*_rates(before, seen), tuple(uncounted))

    def _see(self, broker: Broker) -> Seen:
        at = self._pages.get(broker) or self._page(broker)
        request = urllib.request.Request(f"{at}/metrics?{urlencode([('name[]', name) for name in _COUNTERS])}")
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
                text = answer.read().decode()
            found = _counts(text)
        except urllib.error.HTTPError as error:
            with error:
                wants = "wants its token, --http-token-file" if error.code == 401 else f"answers {error.code}"
                raise ClientError(f"{at} {wants}") from None
        except (OSError, HTTPException, ValueError) as error:
            self._pages.pop(broker, None)  # the broker may have another one by now
            why = reason(error) if isinstance(error, OSError) else error
            raise ClientError(f"{at} cannot be read: {why}") from None
        self._pages[broker] = at
        return Seen(time.monotonic(), found)

    def _page(self, broker: Broker) -> str:
        """The URL of a broker's HTTP port; ClientError where it has none that is for us."""
        at = broker_configs(self._admin, broker.id).get("ketch.http")
        if not at:
            raise ClientError("it has no http_port")
        if loopback(urlsplit(at).hostname or "") and not loopback(broker.host):
            raise ClientError("its http_port is open to its own machine alone (http_host)")
        return at


def _counts(text: str) -> dict[tuple[str, str], float]:
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families(text)
    samples = (sample for family in families for sample in family.samples if sample.name in _COUNTERS)
    return {(sample.name, sample.labels["topic"]): sample.value for sample in samples}


def _rates(before: Mapping[Broker, Seen], now: Mapping[Broker, Seen]) -> tuple[dict[str, Bytes], Bytes | None]:
    sums = {name: defaultdict[str, float](float) for name in _COUNTERS}
    both = [(before[broker], seen) for broker, seen in now.items() if broker in before]
    for old, new in both:
        passed = max(new.at - old.at, 1e-3)
        for (counter, topic), count in new.counts.items():
            came = count - old.counts.get((counter, topic), 0.0)
            sums[counter][topic] += max(0.0, came) / passed  # less: the broker was started anew
    into, out = (sums[name] for name in _COUNTERS)
    topics = {topic: Bytes(into[topic], out[topic]) for topic in {*into, *out}}
    return topics, Bytes(sum(into.values()), sum(out.values())) if both else None


def _token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"http_token_file {path} cannot be read: {why}.") from None
