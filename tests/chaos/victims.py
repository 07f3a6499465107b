"""What is killed while a program works: itself, the brokers, and their Valkey."""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from ketch.embedded.valkey import server_binary
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer
from tests.support.redis_servers import RedisServer


class Restarted(threading.Thread):
    """A program that is started again whenever it ends."""

    def __init__(self, command: Iterable[str], log: Path) -> None:
        super().__init__(daemon=True)
        self._command, self._log, self._stopping = list(command), log, False
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        with self._log.open("ab") as log:
            while not self._stopping:
                self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
                self.process.wait()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        self._stopping = True
        while self.is_alive():
            self.kill()
            self.join(0.1)


class World:
    """A Valkey that syncs each write, brokers on it, and topics."""

    def __init__(self, directory: Path, brokers: int, layout: str, ids: str, topics: Mapping[str, int]) -> None:
        self.redis = RedisServer(str(server_binary()), directory / "valkey", "--appendfsync", "always")
        common = ["--redis", self.redis.url, "--default-storage-layout", layout, "--default-offset-ids", ids]
        common += ["--broker-session-timeout-ms", "3000", "--broker-heartbeat-interval-ms", "500"]
        self.brokers = [
            KetchServer(directory / f"broker-{n}", "--node-id", str(n), *common).start() for n in range(1, brokers + 1)
        ]
        with Kafka(self.brokers[0].port) as client:
            for name, partitions in topics.items():
                client.create(name, partitions)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def kill(self, what: str, chosen: random.Random, programs: list[Restarted]) -> None:
        """kill -9, and a start: "valkey", a "broker", or else one of the programs, which starts again by itself."""
        if what == "valkey":
            self.redis.kill()
            self.redis.start()
        elif what == "broker":
            broker = chosen.choice(self.brokers)
            broker.kill()
            broker.start()
        else:
            chosen.choice(programs).kill()

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()
        self.redis.stop()
