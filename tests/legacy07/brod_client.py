"""brod against the legacy port, as a program: `python brod_client.py HOME COMMAND ...`, HOME has the package.

    produce PORT TOPIC PARTITION MESSAGE...     prints null
    fetch PORT TOPIC PARTITION OFFSET SIZE      prints [[offset, message], ...], or the name of the error
    offsets PORT TOPIC PARTITION TIME           prints them
    send ZOOKEEPER TOPIC MESSAGE...             each to some partition; prints [[broker, partition], ...]
    member ZOOKEEPER GROUP TOPIC                a consumer of a group: prints a line of JSON for each message,
                                                [broker-partition, message], until its input ends

brod knows ZooKeeper by `zookeeper` and `zc.zk`, which are for Python 2. What it uses of both is here, over kazoo.
"""

from __future__ import annotations

import json
import select
import sys
import types
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

MESSAGE_MAX = 1 << 20


# -- the modules zookeeper and zc.zk, as far as brod uses them


class _Children:
    """The names below a path; a call adds a callback for their changes."""

    def __init__(self, client: KazooClient, path: str) -> None:
        self._client, self._path = client, path
        self.data = client.get_children(path)

    def __call__(self, changed: Callable[[Any], None]) -> _Children:
        def watch(_: object) -> None:
            changed(self)
            self._client.handler.spawn(self._client.get_children, self._path, watch)

        self.data = self._client.get_children(self._path, watch)
        return self


class _Properties:
    """What a node holds: JSON, or a string."""

    def __init__(self, client: KazooClient, path: str) -> None:
        self._client, self._path = client, path
        text = client.get(path)[0].decode()
        self.data = json.loads(text) if text.startswith("{") else {"string_value": text}

    def set(self, string_value: str) -> None:
        self._client.set(self._path, string_value.encode())


class ZooKeeper:
    def __init__(self, hosts: str, timeout: float | None = None) -> None:
        self.handle = KazooClient(hosts, timeout or 10.0)
        self.handle.start(timeout=30)
        self.watches = types.SimpleNamespace(data={})

    def exists(self, path: str) -> object:
        return self.handle.exists(path)

    def children(self, path: str) -> _Children:
        return _Children(self.handle, path)

    def properties(self, path: str) -> _Properties:
        return _Properties(self.handle, path)

    def close(self) -> None:  # brod closes twice
        if self.handle.connected:
            self.handle.stop()


def create(client: KazooClient, path: str, data: str, acl: object, flags: int = 0) -> None:
    client.create(path, data.encode(), ephemeral=bool(flags))


def _provide_modules() -> None:
    zookeeper, zc, zk = (types.ModuleType(name) for name in ("zookeeper", "zc", "zc.zk"))
    vars(zookeeper).update(NoNodeException=NoNodeError, EPHEMERAL=1, create=create)
    vars(zk).update(ZooKeeper=ZooKeeper, FailedConnect=ConnectionError)
    sys.modules.update({"zookeeper": zookeeper, "zc": zc, "zc.zk": zk})


# -- the commands


def produce(port: str, topic: str, partition: str, *messages: str) -> None:
    from brod import Kafka

    Kafka("127.0.0.1", int(port)).produce(topic, [message.encode() for message in messages], int(partition))
    print("null")


def fetch(port: str, topic: str, partition: str, offset: str, size: str) -> None:
    from brod import Kafka, KafkaError

    client = Kafka("127.0.0.1", int(port))
    try:
        found = client.fetch(topic, int(offset), partition=int(partition), max_size=int(size))
    except KafkaError as error:
        print(json.dumps(type(error).__name__))
        return
    print(json.dumps([[offset, message.decode()] for offset, message in found]))


def offsets(port: str, topic: str, partition: str, time: str) -> None:
    from brod import Kafka

    print(json.dumps(Kafka("127.0.0.1", int(port)).offsets(topic, int(time), 100, partition=int(partition))))


def send(hosts: str, topic: str, *messages: str) -> None:
    from brod.zk import ZKProducer

    producer = ZKProducer(hosts, topic)
    sent = [producer.send([message.encode()]) for message in messages]
    print(json.dumps([[where.broker_id, where.partition] for where in sent]))


def member(hosts: str, group: str, topic: str) -> None:
    from brod.zk import ZKConsumer

    consumer = ZKConsumer(hosts, group, topic)
    for found in iter(consumer.fetch, None):
        for messages in found:
            for message in messages.messages:
                print(json.dumps([messages.broker_partition.id, message.decode()]), flush=True)
        if select.select([sys.stdin], [], [], 0.02)[0]:
            break
    consumer.close()


if __name__ == "__main__":
    _, home, command, *arguments = sys.argv
    sys.path.insert(0, home)
    _provide_modules()
    {"produce": produce, "fetch": fetch, "offsets": offsets, "send": send, "member": member}[command](*arguments)
