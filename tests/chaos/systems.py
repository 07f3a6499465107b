"""The systems that a chaos run breaks: brokers and their Valkey as real processes, by role, and how to undo a fault.

- `single`: one broker with its embedded Valkey, `fsync everysec`.
- `three`: three brokers on one Valkey with `appendfsync always`, as an external server needs to lose nothing.
- `workers`: `ketch serve --workers 3` with an embedded Valkey, `fsync everysec`.
- `cluster`: two brokers on a Redis Cluster of three masters with a replica each, see `tests.chaos.sharded`.

`System.hurt` injects one fault and returns the function that undoes it.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ketch.embedded.valkey import server_binary
from tests.chaos import plan
from tests.chaos.clients import Client, NativeWriter
from tests.chaos.history import History, Partition
from tests.support.ketch import KetchServer, eventually
from tests.support.processes import children_of
from tests.support.redis_servers import RedisServer
from tests.support.slow_disk import slow_disk

START_S = 120.0  # until a process that was killed serves again; other faults may hold at that time
SLOW_SYNC_MS = 250
PROCESS = (plan.KILL, plan.RESTART, plan.SHORT_PAUSE, plan.LONG_PAUSE)
SERVE = (
    "--broker-session-timeout-ms", str(plan.BROKER_SESSION_MS), "--broker-heartbeat-interval-ms", "700",
    "--redis-timeout-ms", str(plan.REDIS_TIMEOUT_MS), "--no-auto-create-topics",
)  # fmt: skip
Undo = Callable[[], None]


class System:
    """Started processes. Subclasses say which there are.

    Args:
        directory: of data and logs.
        slow: whether each sync is slow during the whole run; else only while the fault says so.

    Attributes:
        replicated: a failover of Redis may lose what has too few copies.
    """

    replicated = False

    def __init__(self, directory: Path, slow: bool) -> None:
        self.directory = directory
        self._slow_file = directory / "syncs-are-slow"
        directory.mkdir(parents=True, exist_ok=True)
        self.env = slow_disk(SLOW_SYNC_MS, only_while=None if slow else self._slow_file)
        self.brokers: list[KetchServer] = []
        self._locks: dict[str, threading.Lock] = {}  # a process is hurt by one fault at a time
        self._making = threading.Lock()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def redis_port(self) -> int:
        return self.brokers[0].redis_port

    def redis(self) -> redis.Redis:
        return redis.Redis(port=self.redis_port)

    def native_clients(self, history: History, seed: int, partitions: list[Partition]) -> list[Client]:
        """The clients that go past the brokers."""
        client = redis.Redis(port=self.redis_port, socket_timeout=2, retry=Retry(NoBackoff(), 0))
        return [NativeWriter("native", history, seed, client, partitions)]

    def possible(self) -> dict[str, tuple[str, ...]]:
        """The faults that can happen to each target."""
        raise NotImplementedError

    def concerned(self, target: str) -> tuple[str, ...]:
        """What is hurt with a target, and so by no other fault at the same time."""
        return (target,)

    def hurt(self, kind: str, target: str) -> Undo:
        """Does it now, once no other fault holds for that target; what is returned undoes it."""
        with ExitStack() as held:
            for name in sorted(self.concerned(target)):
                with self._making:
                    lock = self._locks.setdefault(name, threading.Lock())
                held.enter_context(lock)
            undo = self._hurt(kind, target)
            release = held.pop_all()

        def released() -> None:
            with release:
                undo()

        return released

    def _hurt(self, kind: str, target: str) -> Undo:
        if kind == plan.SLOW_DISK:
            self._slow_file.touch()
            return self._slow_file.unlink
        role, _, number = target.partition(" ")
        if kind in (plan.SHORT_PAUSE, plan.LONG_PAUSE):
            return pause(self.pid(role, int(number)))
        return self.end(role, int(number), signal.SIGKILL if kind == plan.KILL else signal.SIGTERM)

    def pid(self, role: str, number: int) -> int:
        """The process of a role; waits for it where it is being restarted."""
        if role == "broker":
            process = self.brokers[number].process
            assert process is not None
            return process.pid
        raise NotImplementedError

    def end(self, role: str, number: int, how: signal.Signals) -> Undo:
        """Ends a process with a signal; what is returned starts it again."""
        if role != "broker":
            return supervised(self.pid(role, number), how)
        broker = self.brokers[number]
        assert broker.process is not None
        broker.process.send_signal(how)
        broker.process.wait(START_S)
        return lambda: start_again(broker)

    def stop(self) -> None:
        """Ends everything in order."""
        for broker in self.brokers:
            code = broker.stop(timeout=START_S)
            assert code == 0, f"a broker exited with {code}, see {broker.log_path}"

    def tracebacks(self) -> list[str]:
        """The last line of each traceback in the brokers' logs."""
        found = []
        for broker in self.brokers:
            for part in broker.log.split("Traceback (most recent call last)")[1:]:
                found.append(next((line for line in part.splitlines()[1:] if line[:1].strip()), "?"))
        return found

    def kill(self) -> None:
        """kill -9 of the brokers that still run. A paused child is resumed, since it ends only when it gets SIGTERM."""
        for broker in self.brokers:
            if broker.process is not None and broker.process.poll() is None:
                children = children_of(broker.process.pid)
                broker.kill()
                for child in children:
                    resume(child.pid)


class Single(System):
    def __init__(self, directory: Path, slow: bool) -> None:
        super().__init__(directory, slow)
        self.brokers.append(KetchServer(directory / "broker", *SERVE, env=self.env).start())

    def possible(self) -> dict[str, tuple[str, ...]]:
        return {"broker 0": PROCESS, "valkey 0": PROCESS, "disk 0": (plan.SLOW_DISK,)}

    def pid(self, role: str, number: int) -> int:
        if role == "valkey":
            return child(self.brokers[0], b"valkey-server", 0)
        return super().pid(role, number)


class Workers(Single):
    """The supervisor is the broker; its children are the workers."""

    COUNT = 3

    def __init__(self, directory: Path, slow: bool) -> None:
        System.__init__(self, directory, slow)
        server = KetchServer(directory / "broker", "--workers", str(self.COUNT), *SERVE, env=self.env)
        server.port = consecutive_ports(self.COUNT)
        self.brokers.append(server.start())

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.brokers[0].port + n}" for n in range(self.COUNT))

    def possible(self) -> dict[str, tuple[str, ...]]:
        workers = {f"worker {n}": PROCESS for n in range(self.COUNT)}
        return {**super().possible(), **workers, "broker 0": (plan.KILL, plan.RESTART)}

    def pid(self, role: str, number: int) -> int:
        if role == "worker":
            return child(self.brokers[0], b"\0serve\0", number)
        return super().pid(role, number)


class Three(System):
    COUNT = 3

    def __init__(self, directory: Path, slow: bool) -> None:
        super().__init__(directory, slow)
        self._stack = ExitStack()
        self._valkey = RedisServer(
            str(server_binary()), directory / "valkey", "--appendfsync", "always", env={**os.environ, **self.env}
        )
        self._stack.callback(self._valkey.kill)
        self.brokers += [
            KetchServer(directory / f"broker{n}", "--redis", self._valkey.url, "--node-id", str(n), *SERVE)
            for n in range(1, self.COUNT + 1)
        ]
        for broker in self.brokers:
            broker.start()

    def possible(self) -> dict[str, tuple[str, ...]]:
        brokers = {f"broker {n}": PROCESS for n in range(self.COUNT)}
        return {**brokers, "valkey 0": PROCESS, "disk 0": (plan.SLOW_DISK,)}

    @property
    def redis_port(self) -> int:
        return self._valkey.port

    def pid(self, role: str, number: int) -> int:
        return self._valkey.process.pid if role == "valkey" else super().pid(role, number)

    def end(self, role: str, number: int, how: signal.Signals) -> Undo:
        if role != "valkey":
            return super().end(role, number, how)
        self._valkey.process.send_signal(how)
        self._valkey.process.wait(START_S)
        return self._valkey.start

    def kill(self) -> None:
        super().kill()
        self._stack.close()


def pause(pid: int) -> Undo:
    """SIGSTOP; SIGCONT undoes it. The process may have been ended by its parent in between."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    return lambda: resume(pid)


def resume(pid: int) -> None:
    """SIGCONT, to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def supervised(pid: int, how: signal.Signals) -> Undo:
    """Ends a process that its own parent starts again."""
    with suppress(ProcessLookupError):
        os.kill(pid, how)
    return lambda: None


def start_again(server: KetchServer) -> None:
    """Starts it as often as it takes: what it needs may be broken by another fault at that time."""

    def started() -> bool:
        try:
            server.start()
        except AssertionError:
            server.kill()
            return False
        return True

    eventually(started, START_S, f"a broker to start again, see {server.log_path}")


def child(server: KetchServer, words: bytes, number: int) -> int:
    """The process id of the n-th child of a broker whose command line has these words, once there are so many."""

    def found() -> int | None:
        assert server.process is not None
        children = [each.pid for each in children_of(server.process.pid) if words in each.command + b"\0"]
        return children[number] if len(children) > number else None

    return int(eventually(found, START_S, f"a process {words!r}") or 0)


def consecutive_ports(count: int) -> int:
    """The first of some ports in a row that are free now: workers listen on such."""

    def first() -> int:
        with ExitStack() as stack:
            port: int = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            with suppress(OSError, OverflowError):
                for n in range(1, count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port + n)))
                return port
        return 0

    return eventually(first, what="ports in a row")
