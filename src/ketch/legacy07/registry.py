"""ZooKeeper's registry of 0.7 brokers: what producers and consumers of that time find brokers and partitions by.

It owns two kinds of nodes, both ephemeral: `/brokers/ids/{id}` with "creator:host:port", and
`/brokers/topics/{topic}/{id}` with the number of partitions that clients may ask this broker for. The nodes above them
hold the id of the broker that made them. What consumers keep there (`/consumers`) is theirs alone. The cases:

- The broker starts again within the session timeout of its previous run. That run's nodes are still there, and they go
  with its session. They are left alone until then, and made anew.
- Another broker runs under the same id. Its nodes do not go. A line in the log says so, and this one goes on trying.
- The session is lost (ZooKeeper was out of reach for longer than the session timeout). Its nodes are gone, or will be;
  a new session makes them again.
- ZooKeeper is down, at the start or later. The broker serves who knows its address; one line says so, one that it is
  back.

kazoo runs threads of its own. Everything that blocks runs in a thread here, for one `publish` at a time. ZooKeeper
answers a call when it has synced its log. So the calls for up to `_AT_ONCE` topics are sent together; ZooKeeper carries
them out in the order in which they were sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from ketch import metrics
from ketch.errors import ConfigError

log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)  # it tells every attempt to connect; this file says what matters

_ANSWER_S = 10.0  # for one call; without it a call would wait for as long as ZooKeeper is away
_AT_ONCE = 100  # topics whose nodes are made or removed at one time
_IMPATIENT_S = 3.0  # a start without ZooKeeper is told of after so long
_RETRY_S = 0.5  # between two looks at a node that an earlier session has left


class Taken(Exception):
    """A node is there that belongs to another session."""

    def __init__(self, path: str, value: str) -> None:
        super().__init__(path, value)
        self.path, self.value = path, value


class Registry:
    """One broker's entries.

    Args:
        hosts: "host:port,host:port/chroot", as ZooKeeper's clients take it.
        host, port: where 0.7 clients reach this broker.
        timeout: of a session, seconds.
        changed: called on the event loop when it is worth publishing again.

    Attributes:
        registered: the brokers in ZooKeeper, as last seen, Ketch's or others.

    Raises:
        ConfigError: `hosts` is none.
    """

    def __init__(
        self, hosts: str, broker_id: int, host: str, port: int, timeout: float, changed: Callable[[], None]
    ) -> None:
        self._hosts, self._id, self._timeout, self._changed = hosts, str(broker_id), timeout, changed
        self._address = f"{host}-{time.time_ns() // 1_000_000}:{host}:{port}"  # the creator as 0.7 names itself
        self.registered = frozenset[int]()
        self._session = 0  # whose nodes are known to be there
        self._published: dict[str, int] = {}  # topics in it, with their counts
        self._connected = asyncio.Event()
        self._listener: Callable[[str], None] | None = None
        self._told: str | None = None  # what is wrong, as the log says it
        self._taken_since = 0.0
        # kazoo's own chroot has to be there already.
        servers, _, chroot = hosts.partition("/")
        root = f"/{chroot.strip('/')}".rstrip("/")
        self._ids, self._topics = f"{root}/brokers/ids", f"{root}/brokers/topics"
        retry = KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=2.0)
        try:
            self._client = KazooClient(servers, timeout, connection_retry=retry, logger=_kazoo_log)
        except ValueError as error:
            raise ConfigError(f"zookeeper = {hosts!r} is not allowed: {error}.") from None

    # -- the connection

    def start(self) -> None:
        """Begins to connect; does not wait for it."""
        loop = asyncio.get_running_loop()

        def heard(state: str) -> None:  # in a thread of kazoo's
            with contextlib.suppress(RuntimeError):  # the loop may be gone
                loop.call_soon_threadsafe(self._heard, state)

        self._listener = heard
        self._client.add_listener(heard)
        self._client.start_async()

    async def stop(self) -> None:
        """Ends the session, and with it the nodes."""
        metrics.legacy_registered.set(0)
        self._client.remove_listener(self._listener)
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        with contextlib.suppress(KazooException, KazooTimeoutError):
            self._client.stop()
            self._client.close()

    def _heard(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._connected.set()
            self._changed()
            return
        self._connected.clear()
        metrics.legacy_registered.set(0)
        self._tell(
            f"ZooKeeper at {self._hosts} is out of reach: 0.7 clients that look for brokers there may not find this"
        )

    async def connected(self) -> None:
        """Waits for ZooKeeper."""
        try:
            async with asyncio.timeout(_IMPATIENT_S):
                await self._connected.wait()
        except TimeoutError:
            self._heard(KazooState.SUSPENDED)
            await self._connected.wait()

    def _tell(self, what: str | None) -> None:
        """Writes a line when what is wrong changes."""
        if what is not None and what != self._told:
            log.warning(what)
        self._told = what

    # -- the nodes

    async def publish(self, topics: Mapping[str, int]) -> bool:
        """Makes ZooKeeper show this broker and these topics with their partition counts; False where it can't yet."""
        try:
            fresh = await asyncio.to_thread(self._publish, topics)
        except Taken as taken:
            self._wait_out(taken)
            await asyncio.sleep(_RETRY_S)
            return False
        except (KazooException, KazooTimeoutError) as error:
            log.debug("ZooKeeper: %r", error)
            await asyncio.sleep(_RETRY_S)
            return False
        self._taken_since = 0.0
        metrics.legacy_registered.set(1)
        if fresh or self._told:
            log.info("registered in ZooKeeper at %s: broker %s, %d topics", self._hosts, self._id, len(topics))
        self._tell(None)
        return True

    def _wait_out(self, taken: Taken) -> None:
        now = time.monotonic()
        self._taken_since = self._taken_since or now
        if now - self._taken_since < 2 * self._timeout:
            self._tell(
                f"{taken.path} in ZooKeeper is of an earlier run ({taken.value}): waiting until its session ends"
            )
        else:
            self._tell(f"{taken.path} in ZooKeeper is kept by another broker ({taken.value}): choose another --node-id")

    def _publish(self, topics: Mapping[str, int]) -> bool:
        """In a thread; whether the session is a new one. Topics come last, when their broker can be found."""
        session = self._client.client_id[0]
        fresh: bool = session != self._session
        if fresh:
            self._session, self._published = session, {}
        self._claim({f"{self._ids}/{self._id}": self._address})
        self.registered = frozenset(int(name) for name in self._children(self._ids) if name.isdigit())
        for gone in _parts([topic for topic in self._published if topic not in topics]):
            self._withdraw([self._node(topic) for topic in gone])
            for topic in gone:
                del self._published[topic]
        for new in _parts([topic for topic, count in topics.items() if self._published.get(topic) != count]):
            self._claim({self._node(topic): str(topics[topic]) for topic in new})
            self._published |= {topic: topics[topic] for topic in new}
        return fresh

    def _node(self, topic: str) -> str:
        return f"{self._topics}/{topic}/{self._id}"

    def _children(self, path: str) -> list[str]:
        children: list[str] = self._client.get_children_async(path).get(timeout=_ANSWER_S)
        return children

    def _claim(self, values: Mapping[str, str]) -> None:
        """Makes nodes of this session have these values; Taken where one is another session's."""
        while values:
            there = self._create(values)
            values = self._correct({path: values[path] for path in there})

    def _create(self, values: Mapping[str, str]) -> list[str]:
        """Makes nodes; those that are there already."""
        calls = {path: (value.encode(),) for path, value in values.items()}
        outcomes = self._each("create", calls, ephemeral=True)
        orphans = {path: calls[path] for path, outcome in outcomes.items() if isinstance(outcome, NoNodeError)}
        if orphans:
            self._make_parents(orphans)
            outcomes |= self._each("create", orphans, ephemeral=True)
            for outcome in outcomes.values():
                if isinstance(outcome, NoNodeError):  # somebody deletes them
                    raise outcome
        return [path for path, outcome in outcomes.items() if isinstance(outcome, NodeExistsError)]

    def _make_parents(self, paths: Iterable[str]) -> None:
        """The nodes above, which stay; each holds its creator's id, for who looks at them by hand."""
        above = [path.split("/")[1:-1] for path in paths]
        nodes = ["/" + "/".join(names[:size]) for names in above for size in range(1, len(names) + 1)]
        self._each("create", dict.fromkeys(nodes, (self._id.encode(),)))  # carried out in this order

    def _correct(self, values: Mapping[str, str]) -> dict[str, str]:
        """Gives nodes that are there these values, see `_claim`; those that are gone by now, with their values."""
        stale: dict[str, tuple[bytes]] = {}
        outcomes = self._each("get", dict.fromkeys(values, ()))
        for path, outcome in outcomes.items():
            if isinstance(outcome, NoNodeError):
                continue
            found, stat = outcome
            if stat.owner_session_id != self._client.client_id[0]:
                raise Taken(path, found.decode(errors="replace"))
            if found != values[path].encode():
                stale[path] = (values[path].encode(),)
        outcomes |= self._each("set", stale)
        return {path: values[path] for path, outcome in outcomes.items() if isinstance(outcome, NoNodeError)}

    def _withdraw(self, paths: Sequence[str]) -> None:
        found = self._each("get", dict.fromkeys(paths, ()))
        there = {path: outcome[1] for path, outcome in found.items() if not isinstance(outcome, NoNodeError)}
        session = self._client.client_id[0]
        self._each("delete", {path: () for path, stat in there.items() if stat.owner_session_id == session})

    def _each(self, name: str, calls: Mapping[str, tuple[Any, ...]], **options: Any) -> dict[str, Any]:
        """Makes a call for each node, and none of them waits for another one's answer.

        Args:
            name: of kazoo's method.
            calls: its further arguments, by path.

        Returns: by path, what it returned; NodeExistsError or NoNodeError where that is the answer.
        """
        call = getattr(self._client, f"{name}_async")
        sent = {path: call(path, *arguments, **options) for path, arguments in calls.items()}
        return {path: _outcome(result) for path, result in sent.items()}


def _outcome(result: Any) -> Any:
    try:
        return result.get(timeout=_ANSWER_S)
    except (NodeExistsError, NoNodeError) as error:
        return error


def _parts(topics: list[str]) -> Iterable[list[str]]:
    return (topics[start : start + _AT_ONCE] for start in range(0, len(topics), _AT_ONCE))
