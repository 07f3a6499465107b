"""`ketch topics copy`: its options, its progress and what it says at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli import broker_redis, configs
from ketch.cli.broker_redis import BrokerRedis, Where
from ketch.cli.client_config import properties_of
from ketch.cli.copying import job
from ketch.cli.copying.cluster import Cluster
from ketch.cli.copying.job import Advance, Outcome, Plan
from ketch.cli.options import grouped
from ketch.cli.output import Json, raise_all, show_json
from ketch.cli.progress import progress
from ketch.cli.records.producing import Compression
from ketch.errors import ConfigError, KetchError
from ketch.similar import hint
from ketch.views.kafka import topics
from ketch.views.kafka.answers import ClientError

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class How:
    """The options that say how a topic is copied."""

    as_name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="The copy's name; of one topic.")] = None
    config: configs.Config = None
    own_configs: Annotated[
        bool, typer.Option("--configs/--no-configs", help="Give the copy the topic's configs; default: yes.")
    ] = True
    with_groups: Annotated[
        bool, typer.Option("--groups/--no-groups", help="Copy where groups have come to; default: yes.")
    ] = True
    protocol: Annotated[
        bool, typer.Option("--protocol", help="Produce to a Ketch as to any Kafka, not straight into its Redis.")
    ] = False
    compression: Annotated[
        Compression, typer.Option(help="Of what is produced; not of what goes straight into Redis.")
    ] = Compression.NONE


@grouped
def copy(
    names: Annotated[list[str], typer.Argument(metavar="TOPICS...", help="Topics, or patterns such as 'orders.*'.")],
    source: Annotated[
        str, typer.Option("--from", metavar="HOST:PORT[,...]", help="The Kafka (or Ketch) that has them.")
    ],
    source_config: Annotated[
        Path | None,
        typer.Option("--from-config", metavar="FILE", help="How to log in there, as --command-config for -b."),
    ] = None,
    *,
    how: How,
    where: Where,
    as_json: Json = False,
) -> None:
    """Copy topics from another Kafka: records with offsets, configs, and positions of groups.

    It copies what is there when it begins. Run again it goes on from there, also after it was killed: no record comes
    twice, and none is left out. -b says where to.
    """
    origin = Cluster(source, properties_of(source_config, "--from-config"))
    into = Cluster(where.bootstrap)
    chosen = _chosen(topics.listed(origin.admin), names)
    if how.as_name is not None and len(chosen) != 1:
        raise ConfigError(f"--as names one copy, and {len(chosen)} topics are to be copied.")
    plan = Plan(
        origin,
        into,
        _redis(into, where, how),
        configs.pairs(how.config or ()),
        how.own_configs,
        how.with_groups,
        how.compression.value,
    )
    done, failures = [], []
    try:
        for topic in chosen:
            with _progress(topic) as advance:
                outcome = job.copy(plan, topic, how.as_name or topic, advance)
            done.append(outcome)
            failures += outcome.failures
            if not as_json:
                _say(outcome, plan)
    except KeyboardInterrupt:
        raise ClientError("Interrupted: run it again to go on from here.") from None
    except KetchError as error:
        raise_all([*failures, error])
    finally:
        if as_json and done:
            show_json([_as_json(outcome) for outcome in done])
    raise_all(failures)


def _redis(into: Cluster, where: Where, how: How) -> BrokerRedis | None:
    """The target's Redis where records go straight into it; says so where a Ketch's cannot be used."""
    if how.protocol or not into.is_ketch:
        return None
    return broker_redis.find_or_say(into.admin, where.redis, where.keyspace, "gaps and first offsets are")


def _chosen(known: list[tuple[str, int]], patterns: list[str]) -> list[str]:
    """The topics that are meant, in order; raises ClientError for a name or pattern without one."""
    names = [name for name, _ in known]
    found: dict[str, None] = {}
    for pattern in patterns:
        if _WILD.isdisjoint(pattern):
            matching = [pattern] if pattern in names else []
        else:  # internal topics have to be named
            matching = [name for name in names if fnmatchcase(name, pattern) and not name.startswith("__")]
        if not matching:
            near = hint(pattern, names)
            raise ClientError(f"Topic {pattern} cannot be copied: the source has none of this name{near}.")
        found.update(dict.fromkeys(matching))
    return list(found)


def _say(outcome: Outcome, plan: Plan) -> None:
    rate = f"{outcome.records / outcome.seconds:,.0f} records/s" if outcome.seconds else ""
    offsets = "with their offsets" if outcome.kept else "with other offsets"
    what = "1 partition" if outcome.partitions == 1 else f"{outcome.partitions} partitions"
    groups = "" if not plan.groups else f", positions of {len(outcome.groups)} groups"
    if len(outcome.groups) == 1:
        groups = f", the position of group {outcome.groups[0]}"
    name = outcome.topic if outcome.topic == outcome.copy else f"{outcome.topic} as {outcome.copy}"
    typer.echo(f"{name}: {outcome.records:,} records of {what} {offsets}{groups}, in {outcome.seconds:.1f} s ({rate})")


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "topic": outcome.topic,
        "copy": outcome.copy,
        "partitions": outcome.partitions,
        "records": outcome.records,
        "seconds": round(outcome.seconds, 3),
        "offsets_kept": outcome.kept,
        "groups": outcome.groups,
    }


@contextmanager
def _progress(topic: str) -> Iterator[Advance]:
    """A bar on a terminal; gives the function that brings it up to date."""

    def columns() -> list[ProgressColumn]:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

        percentage, records = TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.fields[records]:,} records")
        return [TextColumn(topic), BarColumn(), percentage, records, TimeRemainingColumn()]

    with progress(columns, records=0) as update:
        yield lambda done, todo, records: update(completed=done, total=todo, records=records)
