"""A system on a Redis Cluster: two brokers, three masters, a replica of each; topics with `min.insync.replicas=2`.

A shard is a master and its replica, whichever of the two is which at the time. One fault at a time concerns a shard,
and it is over when both run again and the replica has what the master has: two copies of everything are what is
promised. Faults of several shards overlap. Where the network can be cut (`tests.support.cuts`), a node is also cut off
from the others or from clients. `appendfsync always`, since a master that comes back before its replica takes its place
must have what it had.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ketch.redis.slots import slot
from tests.chaos import plan
from tests.chaos.clients import Client, CopiedNativeWriter, NativeReader, stream_of
from tests.chaos.history import History, Partition
from tests.chaos.systems import PROCESS, SERVE, START_S, System, Undo, pause
from tests.support import cuts
from tests.support.clusters import Node, RedisCluster
from tests.support.cuts import Cuts
from tests.support.ketch import KetchServer, eventually

COPIES = ("--min-insync-replicas", "2")
MOVED = ("record-time", "transacted-record", "record-dense", "batch-time", "transacted-batch-dense", "batch-dense")
ANSWER_S = 1.0  # a node that runs answers within


class Sharded(System):
    BROKERS = 2
    SHARDS = 3
    replicated = True

    def __init__(self, directory: Path, slow: bool) -> None:
        super().__init__(directory, slow)
        options = ("--appendfsync", "always")
        network = None if cuts.why_not() else cuts.network()
        self._cuts = None if network is None else Cuts(network)
        self._cluster = RedisCluster(
            directory / "redis", self.SHARDS, replicas=1, module=True, options=options, network=network
        )
        nodes = self._cluster.nodes
        self._shards = list(zip(nodes[: self.SHARDS], nodes[self.SHARDS :], strict=True))
        self._moved = 0
        self.brokers += [
            KetchServer(directory / f"broker{n}", "--redis", self._cluster.url, "--node-id", str(n), *COPIES, *SERVE)
            for n in range(1, self.BROKERS + 1)
        ]
        for broker in self.brokers:
            broker.start()

    def redis(self) -> redis.Redis:
        return cast(redis.Redis, self._client())

    def _client(self) -> redis.RedisCluster:
        seeds = [redis.cluster.ClusterNode(*node.place) for node in self._cluster.nodes]
        return redis.RedisCluster(startup_nodes=seeds, socket_timeout=2, retry=Retry(NoBackoff(), 0))

    def native_clients(self, history: History, seed: int, partitions: list[Partition]) -> list[Client]:
        return [
            CopiedNativeWriter("native", history, seed, self._client(), partitions),
            NativeReader("native reader", history, seed, self._client(), partitions),
        ]

    def possible(self) -> dict[str, tuple[str, ...]]:
        kinds = PROCESS if self._cuts is None else (*PROCESS, plan.ISOLATION, plan.HIDING)
        targets = {f"{role} {n}": kinds for role, n in product(("master", "replica"), range(self.SHARDS))}
        targets |= {f"shard {n}": (plan.FAILOVER, plan.FORCED_FAILOVER) for n in range(self.SHARDS)}
        targets |= {f"broker {n}": PROCESS for n in range(self.BROKERS)}
        return {**targets, "shards all": (plan.MIGRATION, plan.ROLLING_RESTART)}

    def concerned(self, target: str) -> tuple[str, ...]:
        role, _, number = target.partition(" ")
        if role == "broker":
            return (target,)
        return tuple(f"shard {n}" for n in range(self.SHARDS)) if role == "shards" else (f"shard {number}",)

    def _hurt(self, kind: str, target: str) -> Undo:
        role, _, number = target.partition(" ")
        if role == "broker":
            return super()._hurt(kind, target)
        if kind == plan.MIGRATION:
            return self._move_slots()
        if kind == plan.ROLLING_RESTART:
            self._restart_all()
            return lambda: None
        shard = int(number)
        if role == "shard":
            self._fail_over(shard, force=kind == plan.FORCED_FAILOVER)
            return partial(self._wait_whole, shard)
        return self._hurt_node(kind, shard, self._nodes(shard)[role == "replica"])

    def _hurt_node(self, kind: str, shard: int, node: Node) -> Undo:
        if kind in (plan.ISOLATION, plan.HIDING):
            resume = self._cut_off(kind, node)
        elif kind in (plan.SHORT_PAUSE, plan.LONG_PAUSE):
            resume = pause(node.process.pid)
        else:
            end(node, signal.SIGKILL if kind == plan.KILL else signal.SIGTERM)
            resume = node.start

        def undo() -> None:
            resume()
            self._wait_whole(shard)

        return undo

    def _cut_off(self, kind: str, node: Node) -> Undo:
        assert self._cuts is not None
        (self._cuts.isolate if kind == plan.ISOLATION else self._cuts.hide)(node.host)
        return partial(self._cuts.heal, node.host)

    # -- shards

    def _nodes(self, shard: int) -> tuple[Node, Node]:
        """Its master and its replica; both run and agree on that, as long as no fault concerns it."""
        one, other = self._shards[shard]
        return (one, other) if self._role(one) == "master" else (other, one)

    def _role(self, node: Node) -> str:
        """Of a node that runs: it may be slow to answer."""
        found = ""

        def told() -> bool:
            nonlocal found
            with suppress(redis.ConnectionError, redis.TimeoutError):
                found = role_of(node)
            return bool(found)

        eventually(told, START_S, f"the role of {node.port}")
        return found

    def _wait_whole(self, shard: int) -> None:
        eventually(partial(self._is_whole, shard), START_S, f"shard {shard} to be whole")

    def _is_whole(self, shard: int) -> bool:
        try:
            return any(follows(master, replica) for master, replica in (self._shards[shard], self._shards[shard][::-1]))
        except redis.RedisError:
            return False

    def _fail_over(self, shard: int, force: bool = False) -> None:
        """Asks as often as it takes: without a majority of the masters nobody is elected."""
        _, replica = self._nodes(shard)

        def done() -> bool:
            with suppress(redis.RedisError):
                if role_of(replica) == "master":
                    return True
                ask(replica, "CLUSTER", "FAILOVER", *(("FORCE",) if force else ()))
                eventually(lambda: role_of(replica) == "master", 3.0)
            return False

        def tried() -> bool:
            with suppress(AssertionError):
                return done()
            return False

        eventually(tried, START_S, f"the replica of shard {shard} to become its master")

    def _restart_all(self) -> None:
        """As operators do it: a replica first, which then takes its master's place."""
        for shard in range(self.SHARDS):
            for _ in range(2):
                replica = self._nodes(shard)[1]
                end(replica, signal.SIGTERM)
                replica.start()
                self._wait_whole(shard)
                self._fail_over(shard)
                self._wait_whole(shard)

    def _move_slots(self) -> Undo:
        """The slots of a topic's partitions go to the next shards, and back again."""
        topic = MOVED[self._moved % len(MOVED)]
        self._moved += 1
        slots = [slot(stream_of(Partition(topic, number)).encode()) for number in range(2)]
        homes = [self._shard_of(each) for each in slots]
        for each, home in zip(slots, homes, strict=True):
            self._move(each, (home + 1) % self.SHARDS)

        def back() -> None:
            for each, home in zip(slots, homes, strict=True):
                self._move(each, home)

        return back

    def _shard_of(self, moved: int) -> int:
        owner = self._cluster.owner(moved)
        return next(n for n, nodes in enumerate(self._shards) if owner in nodes)

    def _move(self, moved: int, shard: int) -> None:
        """To a shard, whose replica has it when this returns."""
        self._cluster.migrate(moved, self._nodes(shard)[0])
        for each in range(self.SHARDS):
            self._wait_whole(each)

    def kill(self) -> None:
        super().kill()
        self._cluster.stop()
        if self._cuts is not None:
            self._cuts.close()


def ask(node: Node, *words: str | int) -> object:
    """A reply of a node that may be gone or paused.

    Raises:
        redis.RedisError: there is none.
    """
    with redis.Redis(*node.place, socket_timeout=ANSWER_S, retry=Retry(NoBackoff(), 0)) as client:
        return client.execute_command(*words)


def replication(node: Node) -> dict[str, str | int]:
    return cast(dict[str, str | int], ask(node, "INFO", "replication"))


def role_of(node: Node) -> str:
    return str(replication(node)["role"])


def follows(master: Node, replica: Node) -> bool:
    """Whether it is the replica of this master, and has all that the master has."""
    of_master, of_replica = replication(master), replication(replica)
    if of_master["role"] != "master" or of_replica.get("master_port") != master.port:
        return False
    reached = int(of_replica.get("slave_repl_offset", -1)) >= int(of_master["master_repl_offset"])
    return of_replica["master_link_status"] == "up" and reached and _sees(master, replica) and _sees(replica, master)


def _sees(asked: Node, other: Node) -> bool:
    """Whether a node takes another one for alive."""
    text = cast(bytes, ask(asked, "CLUSTER", "NODES")).decode()
    words = next(line.split() for line in text.splitlines() if line.startswith(other.id))
    return "fail" not in words[2] and words[7] == "connected"


def end(node: Node, how: signal.Signals) -> None:
    node.process.send_signal(how)
    node.process.wait(START_S)
