"""`ketch acls`: list, add and remove ACLs, by a broker or, for the first ones, straight in Redis.

The options are those of Kafka's kafka-acls.sh. This module says which ACLs and filters they mean; `views.kafka.acls`
asks a broker, `store.access.acls` knows how ACLs lie in Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from ketch.cli import client
from ketch.cli.broker_redis import BrokerOrRedis, BrokerRedis
from ketch.cli.options import grouped
from ketch.cli.output import Json, confirm, show_json, show_rows
from ketch.errors import ConfigError
from ketch.security.acls import CLUSTER_NAME, WILDCARD, Acl, Filter, Operation, PatternType, Permission, ResourceType
from ketch.similar import hint
from ketch.store.access import acls as stored
from ketch.views.kafka import acls as by_broker

app = typer.Typer(
    help="List, add and remove ACLs: who may do what.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Names = list[str]
_COLUMNS = ("principal", "host", "permission", "operation", "resource", "pattern", "name")
_NO_RESOURCE = "Name what the ACLs are about: --topic, --group, --transactional-id or --cluster."


@dataclass(frozen=True, slots=True)
class Resources:
    """The options that name resources."""

    topic: Annotated[Names, typer.Option("--topic", help="A topic; * is every one.")] = ()  # type: ignore[assignment]
    group: Annotated[Names, typer.Option("--group", help="A consumer group.")] = ()  # type: ignore[assignment]
    transactional_id: Annotated[Names, typer.Option("--transactional-id", help="A transactional id.")] = ()  # type: ignore[assignment]
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster.")] = False
    resource_pattern_type: Annotated[
        str, typer.Option("--resource-pattern-type", help="literal or prefixed; in filters also any and match.")
    ] = "literal"

    def named(self) -> Iterator[tuple[ResourceType, str]]:
        """Type and name of each."""
        yield from ((ResourceType.TOPIC, name) for name in self.topic)
        yield from ((ResourceType.GROUP, name) for name in self.group)
        yield from ((ResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_id)
        if self.cluster:
            yield ResourceType.CLUSTER, CLUSTER_NAME

    def pattern(self, filters: bool) -> PatternType:
        """Raises ConfigError for a pattern type that cannot be."""
        allowed = list(PatternType)[1:] if filters else [PatternType.LITERAL, PatternType.PREFIXED]
        for pattern in allowed:
            if pattern.name == self.resource_pattern_type.upper():
                return pattern
        words = " or ".join(pattern.name.lower() for pattern in allowed)
        raise ConfigError(f"--resource-pattern-type {self.resource_pattern_type!r} should be {words}.")


@dataclass(frozen=True, slots=True)
class Entries:
    """The options that say who may do what, or who may not."""

    allow_principal: Annotated[Names, typer.Option("--allow-principal", help="User:NAME who may; User:* is all.")] = ()  # type: ignore[assignment]
    deny_principal: Annotated[Names, typer.Option("--deny-principal", help="User:NAME who may not.")] = ()  # type: ignore[assignment]
    allow_host: Annotated[Names, typer.Option("--allow-host", help="From this address alone.")] = ()  # type: ignore[assignment]
    deny_host: Annotated[Names, typer.Option("--deny-host", help="Not from this address.")] = ()  # type: ignore[assignment]
    operation: Annotated[Names, typer.Option("--operation", help="Read, Write, ...; default: All.")] = ()  # type: ignore[assignment]
    producer: Annotated[bool, typer.Option("--producer", help="What a producer to --topic needs.")] = False
    consumer: Annotated[bool, typer.Option("--consumer", help="What a consumer of --topic in --group needs.")] = False
    idempotent: Annotated[bool, typer.Option("--idempotent", help="With --producer: an idempotent one.")] = False

    def who(self) -> Iterator[tuple[Permission, str, str]]:
        """Permission, principal and host of each."""
        for permission, principals, hosts in (
            (Permission.ALLOW, self.allow_principal, self.allow_host),
            (Permission.DENY, self.deny_principal, self.deny_host),
        ):
            for principal in principals:
                kind, colon, name = principal.partition(":")
                if not (kind and colon and name):
                    raise ConfigError(f"{principal!r} is no principal: write User:NAME.")
                yield from ((permission, principal, host) for host in hosts or [WILDCARD])
            if hosts and not principals:
                raise ConfigError("A host needs a principal: --allow-principal or --deny-principal.")


@app.command("list")
@grouped
def list_(
    principal: Annotated[Names, typer.Option("--principal", help="Those of this principal.")] = [],  # noqa: B006
    *,
    resources: Resources,
    where: BrokerOrRedis,
    as_json: Json = False,
) -> None:
    """List ACLs: all of them, or those of some resources and principals."""
    place = _place(where)
    acls = {acl for each in _filters(resources, principal or [None]) for acl in place.chosen(each)}
    _show(sorted(acls), as_json)


@app.command()
@grouped
def add(*, resources: Resources, entries: Entries, where: BrokerOrRedis, as_json: Json = False) -> None:
    """Add ACLs, and show them.

    The operation, or --producer or --consumer, is allowed or denied on each resource for each principal.
    """
    acls = list(dict.fromkeys(_acls(resources, entries)))
    _place(where).add(acls)
    _show(acls, as_json)


@app.command()
@grouped
def remove(
    yes: Annotated[bool, typer.Option("--yes", "--force", "-y", help="Do not ask.")] = False,
    *,
    resources: Resources,
    entries: Entries,
    where: BrokerOrRedis,
    as_json: Json = False,
) -> None:
    """Remove ACLs, and show them: those that `add` would add, or without a principal all of the resources."""
    named = list(resources.named())
    if not named:
        raise ConfigError(_NO_RESOURCE)
    if entries.allow_principal or entries.deny_principal:
        filters = [_exactly(acl) for acl in _acls(resources, entries, filters=True)]
    else:
        filters = list(_filters(resources, [None]))
    confirm(f"Remove the ACLs of {', '.join(name for _, name in named)}?", yes)
    place = _place(where)
    _show(sorted({acl for each in filters for acl in place.remove(each)}), as_json)


# -- what the options mean


def _filters(resources: Resources, principals: Sequence[str | None]) -> Iterator[Filter]:
    pattern = resources.pattern(filters=True)
    for principal in principals:
        named = False
        for kind, name in resources.named():
            named = True
            yield Filter(kind, pattern, name, principal)
        if not named:
            yield Filter(principal=principal)


def _acls(resources: Resources, entries: Entries, filters: bool = False) -> Iterator[Acl]:
    """The ACLs that the options describe.

    Args:
        filters: they say which to remove, so the pattern may be any of a filter's.
    """
    pattern, who = resources.pattern(filters), list(entries.who())
    if not who:
        raise ConfigError("Say who: --allow-principal or --deny-principal.")
    operations = list(_operations(resources, entries))
    if not operations:
        raise ConfigError(_NO_RESOURCE)
    for kind, name, operation in operations:
        of = PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern
        for permission, principal, host in who:
            yield Acl(kind, of, name, principal, host, operation, permission)


def _operations(resources: Resources, entries: Entries) -> Iterator[tuple[ResourceType, str, Operation]]:
    if entries.producer or entries.consumer:
        yield from _of_clients(resources, entries)
        return
    if entries.idempotent:
        raise ConfigError("--idempotent goes with --producer.")
    for kind, name in resources.named():
        for word in entries.operation or ["All"]:
            yield kind, name, _operation(kind, word)


def _of_clients(resources: Resources, entries: Entries) -> Iterator[tuple[ResourceType, str, Operation]]:
    """As AclCommand.getProducerResourceFilterToAcls and getConsumerResourceFilterToAcls."""
    if entries.operation:
        raise ConfigError("--operation does not go with --producer or --consumer: these say what is needed.")
    if not resources.topic or (entries.consumer and not resources.group):
        raise ConfigError("--producer needs --topic, --consumer needs --topic and --group.")
    of_topics: list[Operation] = []
    if entries.producer:
        of_topics += [Operation.WRITE, Operation.DESCRIBE, Operation.CREATE]
        for id in resources.transactional_id:
            yield from ((ResourceType.TRANSACTIONAL_ID, id, each) for each in (Operation.WRITE, Operation.DESCRIBE))
        if entries.idempotent:
            yield ResourceType.CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE
    if entries.consumer:
        of_topics += [Operation.READ, Operation.DESCRIBE]
        yield from ((ResourceType.GROUP, group, Operation.READ) for group in resources.group)
    for topic in resources.topic:
        yield from ((ResourceType.TOPIC, topic, each) for each in dict.fromkeys(of_topics))


def _operation(kind: ResourceType, word: str) -> Operation:
    """An operation as people write it, `DescribeConfigs` or `describe_configs`; raises ConfigError for any other."""
    from ketch.broker.resources import OPERATIONS

    known = [Operation.ALL, *sorted(OPERATIONS[kind])]
    shown = {"".join(part.capitalize() for part in each.name.split("_")): each for each in known}
    for name, operation in shown.items():
        if name.lower() == word.lower().replace("_", "").replace("-", ""):
            return operation
    near = hint(word, shown, 0.6) or f"; there are {', '.join(shown)}"
    raise ConfigError(f"--operation {word!r} is none of a {kind.name.lower()}{near}.")


def _exactly(acl: Acl) -> Filter:
    return Filter(acl.resource, acl.pattern, acl.name, acl.principal, acl.host, acl.operation, acl.permission)


# -- where they are


@dataclass(frozen=True, slots=True)
class _Place:
    """Asks for ACLs and changes them: a broker, or its Redis."""

    chosen: Callable[[Filter], list[Acl]]
    add: Callable[[Sequence[Acl]], None]
    remove: Callable[[Filter], list[Acl]]


def _place(where: BrokerOrRedis) -> _Place:
    redis = where.connected()
    if redis is not None:
        return _Place(partial(_chosen, redis), partial(_add, redis), partial(_remove, redis))
    admin = client.admin(where.bootstrap)
    return _Place(partial(by_broker.chosen, admin), partial(by_broker.add, admin), partial(by_broker.remove, admin))


def _stored(redis: BrokerRedis) -> dict[bytes, Acl]:
    return stored.parsed(redis.ask(stored.read(redis.keys)))


def _chosen(redis: BrokerRedis, wanted: Filter) -> list[Acl]:
    return sorted({acl for acl in _stored(redis).values() if wanted.matches(acl)})


def _add(redis: BrokerRedis, acls: Sequence[Acl]) -> None:
    redis.ask(stored.add(redis.keys, acls))


def _remove(redis: BrokerRedis, wanted: Filter) -> list[Acl]:
    found = {member: acl for member, acl in _stored(redis).items() if wanted.matches(acl)}
    if found:
        redis.ask(stored.remove(redis.keys, found))
    return sorted(set(found.values()))


def _show(acls: Sequence[Acl], as_json: bool) -> None:
    rows = [
        (a.principal, a.host, a.permission.name, a.operation.name, a.resource.name, a.pattern.name, a.name)
        for a in acls
    ]
    if as_json:
        show_json([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
    else:
        show_rows(_COLUMNS, rows, optional=("pattern",))
