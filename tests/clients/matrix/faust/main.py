"""faust-streaming: an agent that counts words in a table; see ../README.md. With a fourth argument it is the worker."""

import asyncio
import json
import subprocess
import sys
import tempfile
from contextlib import suppress

import faust
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

BOOTSTRAP, TOPIC, LAYOUT = sys.argv[1:4]
OUT, CHANGELOG = f"{TOPIC}.counts", f"{TOPIC}-app-counts-changelog"
CONFIG = {} if LAYOUT == "-" else {"storage.layout": LAYOUT}
WAIT = 60


def work():
    """The worker, until it is told to end."""
    settings = {"store": "memory://", "web_enabled": False, "topic_partitions": 1, "topic_replication_factor": 1}
    app = faust.App(f"{TOPIC}-app", broker=f"kafka://{BOOTSTRAP}", datadir=tempfile.mkdtemp(), **settings)
    lines = app.topic(TOPIC, value_type=bytes, value_serializer="raw")
    out = app.topic(OUT, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
    counts = app.Table("counts", default=int, partitions=1, extra_topic_configs=CONFIG)

    @app.agent(lines)
    async def count(stream):
        async for line in stream:
            for word in line.decode().split():
                counts[word] += 1
                await out.send(key=word.encode(), value=str(counts[word]).encode())

    faust.Worker(app, loglevel="warning").execute_from_commandline()


class Worker:
    """The worker as a process of its own."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, __file__, *sys.argv[1:4], "worker"], stdout=sys.stderr)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


async def send(*lines):
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP)
    await producer.start()
    for line in lines:
        await producer.send_and_wait(TOPIC, line.encode())
    await producer.stop()


async def expect(expected, worker):
    """Waits until the last count of each word is what is expected."""
    found = {}
    reader = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP)
    await reader.start()
    partition = TopicPartition(OUT, 0)
    reader.assign([partition])
    await reader.seek_to_beginning(partition)
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT):
            while found != expected and worker.process.poll() is None:
                for records in (await reader.getmany(timeout_ms=200)).values():
                    found |= {record.key.decode(): int(record.value) for record in records}
    await reader.stop()
    assert found == expected, f"{found}, not {expected}; the worker's exit code is {worker.process.poll()}"


async def agent(workers):
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    await admin.create_topics([NewTopic(name, 1, 1, topic_configs=CONFIG) for name in (TOPIC, OUT)])
    await admin.close()
    await send("hello faust", "hello redis")
    workers.append(Worker())
    await expect({"hello": 2, "faust": 1, "redis": 1}, workers[-1])


async def table(_):
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, CHANGELOG)])
    await admin.close()
    found = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    assert found.get("cleanup.policy") == "compact", answer.resources[0][:4]
    assert LAYOUT == "-" or found["storage.layout"] == LAYOUT, found["storage.layout"]


async def recovery(workers):
    workers[-1].stop()
    workers.append(Worker())
    await send("hello again")
    await expect({"hello": 3, "faust": 1, "redis": 1, "again": 1}, workers[-1])


async def main():
    print(json.dumps({"version": faust.__version__}), flush=True)
    workers = []
    try:
        for name, feature in {"agent": agent, "table": table, "recovery": recovery}.items():
            try:
                await feature(workers)
                print(json.dumps({"feature": name, "ok": True}), flush=True)
            except Exception as e:
                print(json.dumps({"feature": name, "ok": False, "why": f"{type(e).__name__}: {e}"}), flush=True)
    finally:
        for worker in workers:
            worker.stop()


if len(sys.argv) > 4:
    work()
else:
    asyncio.run(main())
