"""Redis Clusters, and masters behind sentinels: real servers on loopback ports, and the faults that tests give them."""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import redis

from ketch.append_module.library import module_path
from ketch.redis.slots import SLOTS
from tests.support.ketch import eventually
from tests.support.modules import binary as path_of
from tests.support.redis_servers import RedisServer
from tests.support.tls import Secured

LIMIT = 60.0  # s for a cluster to settle on a busy machine
_BUS = 10_000  # the cluster bus of Redis 6.2 has the port that is so much above the other
_PORTS = (10_000, 22_000)  # with the bus ports, below those that the system gives to outgoing connections
_NO_DELAYS = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")


class Node(RedisServer):
    """A server of a cluster.

    Attributes:
        id: by which the others know it.
    """

    id: str = ""
    paused = False

    def __init__(
        self,
        binary: str,
        directory: Path,
        *options: str,
        port: int = 0,
        secured: Secured | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.secured = secured
        super().__init__(binary, directory, *options, *(secured.options(port) if secured else ()), port=port, host=host)

    def client(self, **options: Any) -> redis.Redis:
        """Of the default user."""
        return redis.Redis(self.host, self.port, **(self.secured.client_options() if self.secured else {}), **options)

    @property
    def place(self) -> tuple[str, int]:
        return self.host, self.port

    @cached_property
    def _asking(self) -> redis.Redis:
        """The client of `ask`, which connects again where the server was started again."""
        return self.client()

    def ask(self, *words: Any) -> Any:
        """A command's reply."""
        return self._asking.execute_command(*words)

    def end(self) -> None:
        """kill -9, also of one that is paused."""
        self._asking.close()
        self.kill()

    @property
    def is_master(self) -> bool:
        return bool(self.ask("ROLE")[0] == b"master")

    def says(self, section: str, line: str) -> bool:
        """Whether a line is in INFO, or in CLUSTER INFO for the section "cluster"."""
        words = ("CLUSTER", "INFO") if section == "cluster" else ("INFO", section)
        try:
            text = self.ask(*words)
        except redis.RedisError:
            return False
        if isinstance(text, dict):  # as the client reads INFO
            name, _, value = line.partition(":")
            return str(text.get(name)) == value
        return line.encode() in text.split()

    def wait_following(self) -> None:
        """Until it is a replica that has had a whole copy of its master."""
        up = "master_link_status:up"
        eventually(lambda: self.says("replication", up), LIMIT, f"the link of {self.port} to its master")

    def pause(self) -> None:
        """It hangs, until `resume`: connections stay open, and nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.paused = False

    @property
    def running(self) -> bool:
        return self.process.poll() is None and not self.paused


class RedisCluster:
    """A cluster whose slots are shared out evenly among its masters.

    Args:
        replicas: of each master.
        binary: one of `modules.NAMES`; the test is skipped where it is not installed.
        module: whether the nodes load the append module.
        node_timeout: ms after which a silent node counts as failed.
        options: further options of each server.
        secured: TLS and users, if any.
        network: three numbers of an address, as `127.77.5`: each node has one of its own there, see `cuts`.
    """

    def __init__(
        self,
        directory: Path,
        masters: int = 3,
        replicas: int = 0,
        binary: str = "valkey",
        module: bool = False,
        node_timeout: int = 1000,
        options: Iterable[str] = (),
        secured: Secured | None = None,
        network: str | None = None,
    ) -> None:
        self._secured, self._network = secured, network
        self._directory, self._binary = directory, path_of(binary)
        self._options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout), *_NO_DELAYS, *options]
        if module:
            library = module_path()
            assert library is not None, "the append module was not built"
            self._options += ["--loadmodule", str(library)]
        self.nodes: list[Node] = []
        try:
            self._form([self.start_node() for _ in range(masters)], replicas)
        except BaseException:
            self.stop()
            raise

    def _form(self, masters: list[Node], replicas: int) -> None:
        for number, node in enumerate(masters):
            if len(masters) > 1:
                node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            first, end = (SLOTS * n // len(masters) for n in (number, number + 1))
            node.ask("CLUSTER", "ADDSLOTS", *range(first, end))
        for node in masters[1:]:
            masters[0].ask("CLUSTER", "MEET", *node.place)
        self.wait_whole()
        for master in masters:
            for _ in range(replicas):
                self.add_replica(master)

    @property
    def url(self) -> str:
        """Names the first nodes, at most three."""
        hosts = ",".join(f"{node.host}:{node.port}" for node in self.nodes[:3])
        return f"{_scheme('cluster', self._secured)}{hosts}"

    def start_node(self) -> Node:
        """A server that knows no other yet."""
        directory = self._directory / f"node{len(self.nodes)}"
        options = [*self._options, *(("--tls-cluster", "yes") if self._secured else ())]
        host = "127.0.0.1" if self._network is None else f"{self._network}.{len(self.nodes) + 1}"
        node = Node(self._binary, directory, *options, port=free_port(), secured=self._secured, host=host)
        node.id = node.ask("CLUSTER", "MYID").decode()
        self.nodes.append(node)
        return node

    def add_replica(self, master: Node) -> Node:
        """A replica that has all of its master's data."""
        node = self.start_node()
        self._meet(node)
        node.ask("CLUSTER", "REPLICATE", master.id)
        node.wait_following()
        eventually(lambda: all(node.port in self._ports(other) for other in self.running), LIMIT, "the replica's slots")
        return node

    def _meet(self, node: Node) -> None:
        self.running[0].ask("CLUSTER", "MEET", *node.place)
        self.wait_whole()

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes if node.running]

    def wait_whole(self) -> None:
        """Until every node that runs knows all of them, and a node that is up for every slot."""
        eventually(lambda: all(self._sees_all(node) for node in self.running), LIMIT, "the cluster to be whole")

    def _sees_all(self, node: Node) -> bool:
        if not node.says("cluster", "cluster_state:ok"):
            return False
        lines = [line.split() for line in node.ask("CLUSTER", "NODES").decode().splitlines()]
        known = {line[0] for line in lines if "handshake" not in line[2] and line[7] == "connected"}
        return known >= {each.id for each in self.running}

    def client(self, node: Node) -> redis.Redis:
        """A client of one node alone."""
        return node.client()

    # -- slots

    def owner(self, slot: int) -> Node:
        """The master that has a slot, by what most of the running nodes say."""
        said = [self._owner(node, slot) for node in self.running]
        return max(filter(None, said), key=said.count)

    def _owner(self, asked: Node, slot: int) -> Node | None:
        for first, last, master, *_ in asked.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == master[1])
        return None

    def _ports(self, asked: Node) -> set[int]:
        """Of all nodes that have a part of the slots, as one node says."""
        return {place[1] for _, _, *places in asked.ask("CLUSTER", "SLOTS") for place in places}

    def replica_of(self, master: Node) -> Node:
        """One of its replicas that run."""
        role = [b"slave", master.host.encode(), master.port]
        return next(node for node in self.running if node.ask("ROLE")[:3] == role)

    def migrate(self, slot: int, to: Node) -> None:
        """Moves a slot with its keys, as `redis-cli --cluster reshard` does."""
        if self.owner(slot) is to:
            return
        self.begin_migration(slot, to)
        while self.move_keys(slot, to):
            pass
        self.end_migration(slot, to)

    def begin_migration(self, slot: int, to: Node) -> None:
        """From now on keys that are not there any more are asked for at the new node."""
        source = self.owner(slot)
        to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)

    def move_keys(self, slot: int, to: Node, count: int = 100) -> int:
        """Moves some of the keys, whichever the node names first; how many."""
        keys = self.owner(slot).ask("CLUSTER", "GETKEYSINSLOT", slot, count)
        if keys:
            self.move_these(slot, to, *keys)
        return len(keys)

    def move_these(self, slot: int, to: Node, *keys: str | bytes) -> None:
        """Moves these keys of the slot."""
        moved = self.owner(slot).ask("MIGRATE", *to.place, "", 0, int(LIMIT * 1000), "KEYS", *keys)
        assert moved == b"OK", moved

    def end_migration(self, slot: int, to: Node) -> None:
        """The slot is the new node's, which has all of its keys.

        All masters know its new epoch then. Else the next node to take the slot might get no higher one, and a late
        message of this node would take the slot from it again: both would say that the other has it, for ever.
        """
        source = self.owner(slot)
        masters = [node for node in self.running if node.is_master and node not in (to, source)]
        for node in (to, source, *masters):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", to.id)

        def agreed() -> bool:
            return len({self._epoch(node, to) for node in (to, source, *masters)}) == 1

        eventually(agreed, LIMIT, f"all to know the epoch of {to.port}")

    @staticmethod
    def _epoch(asked: Node, node: Node) -> str | None:
        """A node's configuration epoch, as one node knows it."""
        lines = [line.split() for line in asked.ask("CLUSTER", "NODES").decode().splitlines()]
        return next((line[6] for line in lines if line[0] == node.id), None)

    def unassign(self, slot: int) -> None:
        """Takes a slot from its node, so that no node has it and the cluster is not whole."""
        home = self.owner(slot)

        def down() -> bool:
            for node in (home, *self.running):  # one that has not heard of it yet tells it to others again
                if self._owner(node, slot) is not None:
                    node.ask("CLUSTER", "DELSLOTS", slot)
            return all(node.says("cluster", "cluster_state:fail") for node in self.running)

        eventually(down, LIMIT, f"slot {slot} to have no node")

    # -- faults

    def kill(self, node: Node) -> None:
        node.kill()

    def pause(self, node: Node) -> None:
        node.pause()

    def resume(self, node: Node) -> None:
        node.resume()

    def restart(self, node: Node) -> None:
        """Starts a node again that was killed, and waits until it is one of the cluster."""
        node.start()
        self.wait_whole()

    def failover(self, replica: Node, force: bool = False) -> None:
        """Makes a replica the master, and waits until it and all others know that."""
        replica.ask("CLUSTER", "FAILOVER", *(("FORCE",) if force else ()))
        self.wait_master(replica)

    def wait_master(self, node: Node) -> None:
        """Until all that run take the node for a master."""

        def known() -> bool:
            return all(self._is_master(other, node) for other in self.running)

        eventually(known, LIMIT, f"{node.port} to be a master")

    @staticmethod
    def _is_master(asked: Node, node: Node) -> bool:
        return any(master[1] == node.port for _, _, master, *_ in asked.ask("CLUSTER", "SLOTS"))

    def wait_failed_over(self, dead: Node) -> Node:
        """The node that has taken the place of a dead master, once all that run know it and the cluster is whole."""

        def heir() -> bool:
            return all(dead.port not in self._masters(node) for node in self.running)

        slot = next(first for first, _, master, *_ in self.running[0].ask("CLUSTER", "SLOTS") if master[1] == dead.port)
        eventually(heir, LIMIT, f"another node in the place of {dead.port}")
        eventually(lambda: all(node.says("cluster", "cluster_state:ok") for node in self.running), LIMIT, "whole")
        return self.owner(slot)

    def _masters(self, asked: Node) -> set[int]:
        return {master[1] for _, _, master, *_ in asked.ask("CLUSTER", "SLOTS")}

    def stop(self) -> None:
        _end(self.nodes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class Sentinels:
    """A master, its replicas, and the sentinels that watch them.

    Args:
        quorum: sentinels that have to agree on the death of the master.
        binary: see `RedisCluster`.
        down_after: ms after which a silent server counts as down.
        options: further options of the servers.
        secured: TLS and users of the servers, if any, and the default user's password of the sentinels.
    """

    name = "mymaster"

    def __init__(
        self,
        directory: Path,
        replicas: int = 1,
        sentinels: int = 3,
        quorum: int = 2,
        binary: str = "valkey",
        down_after: int = 1000,
        options: Iterable[str] = (),
        secured: Secured | None = None,
    ) -> None:
        self._secured = secured
        self._directory, self._binary = directory, path_of(binary)
        self._options = [*_NO_DELAYS, *options]
        self.nodes: list[Node] = []
        self.sentinels: list[Node] = []
        try:
            self._start(replicas, sentinels, quorum, down_after)
        except BaseException:
            self.stop()
            raise

    def _start(self, replicas: int, sentinels: int, quorum: int, down_after: int) -> None:
        master = self._server()
        for _ in range(replicas):
            self._server("--replicaof", "127.0.0.1", str(master.port)).wait_following()
        for _ in range(sentinels):
            self.sentinels.append(self._sentinel(master, quorum, down_after))

        def acquainted() -> bool:
            return all(self._knows(each, sentinels - 1, replicas) for each in self.sentinels)

        eventually(acquainted, LIMIT, "the sentinels to know each other")

    def _server(self, *options: str) -> Node:
        directory = self._directory / f"server{len(self.nodes)}"
        node = Node(self._binary, directory, *self._options, *options, port=free_port(), secured=self._secured)
        self.nodes.append(node)
        return node

    def _sentinel(self, master: Node, quorum: int, down_after: int) -> Node:
        directory = self._directory / f"sentinel{len(self.sentinels)}"
        directory.mkdir(parents=True)
        config = directory / "sentinel.conf"
        watched = f"sentinel monitor {self.name} 127.0.0.1 {master.port} {quorum}"
        limits = {"down-after-milliseconds": down_after, "failover-timeout": 5 * down_after}
        lines = [f"sentinel {name} {self.name} {value}" for name, value in limits.items()]
        port = free_port()
        ports = [f"port {port}"] if self._secured is None else self._secured.of_sentinel(port)
        if self._secured is not None:
            lines += [f"sentinel auth-pass {self.name} {self._secured.admin}"]
        config.write_text("\n".join([*ports, "bind 127.0.0.1", f"dir {directory}", watched, *lines]) + "\n")
        return Sentinel(self._binary, directory, config, port, self._secured)

    def _knows(self, sentinel: Node, others: int, replicas: int) -> bool:
        facts = self._master_of(sentinel)
        return (facts["num-other-sentinels"], facts["num-slaves"]) == (str(others), str(replicas))

    def _master_of(self, sentinel: Node) -> dict[str, str]:
        with sentinel.client(decode_responses=True) as client:
            return {name: str(value) for name, value in client.sentinel_master(self.name).items()}

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        access = f"?sentinel_password={self._secured.admin}" if self._secured else ""
        return f"{_scheme('sentinel', self._secured)}{hosts}/{self.name}{access}"

    def master(self) -> Node:
        """The master, by what the first sentinel that runs says."""
        sentinel = next(each for each in self.sentinels if each.running)
        port = int(self._master_of(sentinel)["port"])
        return next(node for node in self.nodes if node.port == port)

    def fail_over(self) -> Node:
        """The sentinels make another server the master, in order; that one, once all know it."""
        before = self.master()
        eventually(self._begun, LIMIT, "a replica that may become the master")
        return self.wait_master(before)

    def _begun(self) -> bool:
        try:
            self.sentinels[0].ask("SENTINEL", "FAILOVER", self.name)
        except redis.ResponseError:
            return False
        return True

    def wait_master(self, before: Node) -> Node:
        """The new master in the place of another, once all sentinels know it and it takes writes."""

        def found() -> Node | None:
            ports = {int(self._master_of(each)["port"]) for each in self.sentinels if each.running}
            node = next((node for node in self.nodes if {node.port} == ports), None)
            return node if node is not None and node is not before and node.is_master else None

        node = eventually(found, LIMIT, "a new master")
        assert node is not None
        return node

    def stop(self) -> None:
        _end([*self.sentinels, *self.nodes])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class Sentinel(Node):
    """A sentinel; it writes what it learns into its configuration."""

    def __init__(self, binary: str, directory: Path, config: Path, port: int, secured: Secured | None) -> None:
        self.directory, self.host, self.port, self.secured = directory, "127.0.0.1", port, secured
        self._command = [binary, str(config), "--sentinel"]
        self._log, self._env = directory / "redis.log", None
        self.start()


def free_port() -> int:
    """A free port whose bus port is free, too."""
    source = random.SystemRandom()
    while True:
        port = source.randrange(*_PORTS)
        try:
            with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + _BUS)):
                return port
        except OSError:
            continue


def _scheme(kind: str, secured: Secured | None) -> str:
    """A URL up to its hosts, with the user for brokers."""
    return f"redis+{kind}://" if secured is None else f"rediss+{kind}://{secured.user}:{secured.password}@"


def _end(nodes: Iterable[Node]) -> None:
    for node in nodes:
        node.end()
