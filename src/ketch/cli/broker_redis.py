"""The way to the Redis behind a broker, for what no Kafka request returns: records, lag in records, archives.

The broker names its Redis in its configs (`ketch.redis`, `ketch.keyspace`; DescribeConfigs of the broker), and the
command asks there. A Redis that wants a password, or that is reached at another address from here, is named with
--redis. Only `ketch users` and `ketch acls` write there. What is asked of it is in `views` and `store`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap
from ketch.embedded import with_password
from ketch.errors import RedisError, StorageUnavailable
from ketch.redis import blocking
from ketch.redis.driver import Begun, BlockingDriver
from ketch.redis.question import Question
from ketch.redis.server import Server
from ketch.redis.unusable import why_unusable
from ketch.store.keys import Keyspace
from ketch.views.kafka.answers import ClientError
from ketch.views.kafka.cluster import broker_facts, cluster
from ketch.views.server import cluster_id

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_CONNECT_S = 2.0  # a broker's address may lead nowhere from here, and the command has other things to show
_ANSWER_S = 10.0

DEFAULT_KEYSPACE = "korvet"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Where:
    """The options that say which broker is meant, and where its Redis is."""

    redis: Annotated[
        str | None,
        typer.Option("--redis", envvar="KETCH_REDIS", help="The broker's Redis; default: where the broker says it is."),
    ] = None
    keyspace: Annotated[
        str | None,
        typer.Option("--keyspace", envvar="KETCH_KEYSPACE", help="First part of every key; default: the broker's."),
    ] = None
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP


def _unless_a_broker_is_named(ctx: typer.Context, url: str | None) -> str | None:
    """The callback of --redis: KETCH_REDIS does not count where an option names a broker.

    An option that was typed is read before those that come from the environment, so the source of -b is known here.
    """
    broker, redis = (ctx.get_parameter_source(name) for name in ("bootstrap", "redis"))
    from_option = broker is not None and broker.name == "COMMANDLINE"
    return None if from_option and redis is not None and redis.name == "ENVIRONMENT" else url


@dataclass(frozen=True, slots=True)
class BrokerOrRedis:
    """The options of a command that asks a broker or, with --redis, its Redis without the broker.

    In an empty Redis there is no user and no ACL yet by which a broker would let anybody write the first one. An option
    beats the environment: KETCH_REDIS counts unless -b is given, and before KETCH_BOOTSTRAP_SERVER.
    """

    redis: Annotated[
        str | None,
        typer.Option(
            "--redis",
            envvar="KETCH_REDIS",
            callback=_unless_a_broker_is_named,
            help="Straight in this Redis, without a broker: for the first ones.",
        ),
    ] = None
    keyspace: Annotated[
        str, typer.Option("--keyspace", envvar="KETCH_KEYSPACE", help="With --redis: first part of every key.")
    ] = DEFAULT_KEYSPACE
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP

    def connected(self) -> BrokerRedis | None:
        """The Redis that is named; None where none is, so that a broker is to be asked. Raises as `connect`."""
        return None if self.redis is None else connect(self.redis, self.keyspace)


class BrokerRedis:
    """A connection to the Redis of a broker: a `views.kafka.asker.Redis`."""

    def __init__(self, connection: BlockingDriver, keys: Keyspace, address: str) -> None:
        self._connection = connection
        self.keys = keys
        self.address = address

    def ask(self, question: Question[T]) -> T:
        """The answer to a question.

        Raises:
            StorageUnavailable: Redis does not answer it; the message is a whole sentence.
        """
        return self._answer(lambda: self._connection.ask(question))

    def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        """The answers of every node, see `BlockingDriver.ask_each`. Raises as `ask`."""
        return self._answer(lambda: self._connection.ask_each(question))

    def begin(self, question: Question[T]) -> Begun[T]:
        """Sends a question's commands without waiting, see `BlockingDriver.begin`. Raises as `ask`."""
        return self._answer(lambda: self._connection.begin(question))

    def finish(self, begun: Begun[T]) -> T:
        """The answer to a question that was sent. Raises as `ask`."""
        return self._answer(begun.answer)

    def _answer(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except RedisError as error:
            raise StorageUnavailable(f"Redis at {self.address} does not answer: {why_unusable(error)}.") from None


def find(admin: AdminClient, url: str | None = None, keyspace: str | None = None) -> BrokerRedis:
    """The Redis of the broker: that of `url`, or the one that the broker names.

    Raises:
        ConfigError: `url` is no Redis URL.
        StorageUnavailable: there is none, it cannot be used from here, or it is another broker's. The message is a
            whole sentence which says what to do.
        ClientError: the broker does not answer.
    """
    facts = None if url and keyspace else broker_facts(admin)
    if facts is not None:
        url, keyspace = url or facts.redis, keyspace or facts.keyspace
    if url is None:
        raise StorageUnavailable("This broker does not say where its Redis is: name it with --redis URL.")
    found = connect(url, keyspace or DEFAULT_KEYSPACE)
    if found.ask(cluster_id(found.keys)) != cluster(admin).id:
        raise StorageUnavailable(f"{found.address} is not this broker's Redis: name that with --redis URL.")
    return found


def find_or_say(admin: AdminClient, url: str | None, keyspace: str | None, what: str) -> BrokerRedis | None:
    """As `find`; None where the broker names no Redis that can be asked, which one sentence on stderr then says.

    Args:
        url: where a person gave one: then it has to answer.
        what: begins the sentence: "lag in records is".

    Raises:
        StorageUnavailable: that of `url` does not answer.
        ConfigError: `url` is no Redis URL.
    """
    try:
        return find(admin, url, keyspace)
    except StorageUnavailable as error:
        if url:
            raise
        print(f"ketch: {what} left out. {error}", file=sys.stderr)
        return None


def find_if_any(admin: AdminClient, url: str | None, keyspace: str | None) -> BrokerRedis | None:
    """As `find_or_say`, for what few brokers have: no sentence, and None, too, where the broker does not let the client
    ask for its configs.
    """
    try:
        return find(admin, url, keyspace)
    except (StorageUnavailable, ClientError):
        if url:
            raise
        return None


def connect(url: str, keyspace: str) -> BrokerRedis:
    """The Redis at `url`, once it has answered.

    Raises:
        ConfigError: `url` is no Redis URL.
        StorageUnavailable: it cannot be used; the message is a whole sentence.
    """
    ca, cert, key = (os.environ.get(f"KETCH_REDIS_{name}") for name in ("CA", "CERT", "KEY"))
    server = Server(with_password(url), ca, cert, key, timeout=_ANSWER_S, connect_timeout=_CONNECT_S)
    address = server.address().describe()
    return BrokerRedis(blocking.connect(server, "ketch-cli"), Keyspace(keyspace), address)
