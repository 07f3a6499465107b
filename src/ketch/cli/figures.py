"""Records, bytes and archives of topics, for tables, and the way to the Redis that knows them.

It is the Redis that the broker names (see ask.py). Where it cannot be asked the figures are left out, one sentence on
stderr says why, and the command shows the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli import ask, client
from ketch.cli.ask import Archived, Store
from ketch.errors import StorageUnavailable
from ketch.store.keys import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

RedisUrl = Annotated[
    str | None,
    typer.Option("--redis", envvar="KETCH_REDIS", help="The broker's Redis; default: where the broker says it is."),
]
Keyspace = Annotated[
    str | None,
    typer.Option("--keyspace", envvar="KETCH_KEYSPACE", help="First part of every key; default: the broker's."),
]


def of_topics(
    admin: AdminClient, topics: Iterable[tuple[str, int]], redis: str | None, keyspace: str | None
) -> dict[str, dict[str, Any]]:
    """`records`, `bytes` and `archived` by topic: the first two of what Redis holds.

    `archived` is "no", "all", or "behind" where records wait to be archived.
    """
    store = store_of(admin, redis, keyspace, "records, bytes and archives are")
    return {} if store is None else measured(admin, store, topics)


def measured(admin: AdminClient, store: Store, topics: Iterable[tuple[str, int]]) -> dict[str, dict[str, Any]]:
    """The figures that `of_topics` gives, of a Redis that is at hand."""
    by_topic = {name: [(name, p) for p in range(count)] for name, count in topics}
    partitions = list(chain.from_iterable(by_topic.values()))
    held, archives = store.held(partitions), store.archive_state(partitions)
    begun = {name for (name, _), state in archives.items() if state.through is not None}
    ends = client.partition_offsets(admin, [partition for partition in partitions if partition[0] in begun], "latest")
    return {
        name: {
            "records": sum(held[partition].records for partition in own),
            "bytes": sum(held[partition].bytes for partition in own),
            "archived": _archived(archives, ends, own) if name in begun else "no",
        }
        for name, own in by_topic.items()
    }


def _archived(
    archives: Mapping[TopicPartition, Archived],
    ends: Mapping[TopicPartition, int],
    partitions: Iterable[TopicPartition],
) -> str:
    throughs = [(archives[partition].through or 0, ends[partition]) for partition in partitions]
    return "all" if all(through >= end for through, end in throughs) else "behind"


def store_of(admin: AdminClient, redis: str | None, keyspace: str | None, what: str) -> Store | None:
    """The Redis of the broker; None where the broker names none that can be asked, which stderr then says.

    Args:
        redis: its URL, where a person gave one: then it has to answer.
        what: begins the sentence: "lag in records is".

    Raises:
        StorageUnavailable: that of `redis` does not answer.
        ConfigError: `redis` is no Redis URL.
    """
    try:
        return ask.store(admin, redis, keyspace)
    except StorageUnavailable as error:
        if redis:
            raise
        print(f"ketch: {what} left out. {error}", file=sys.stderr)
        return None
