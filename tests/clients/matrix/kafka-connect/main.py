"""Kafka Connect's distributed worker with a file source and a file sink; see ../README.md."""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

BOOTSTRAP, TOPIC, LAYOUT = sys.argv[1:]
WAIT = 120
SOURCE, SINK = "source", "sink"
INTERNAL = {kind: f"{TOPIC}.connect-{kind}" for kind in ("config", "offset", "status")}
LINES = [f"line {n}" for n in range(100)]


def eventually(probe, what):
    end = time.monotonic() + WAIT
    while not (answer := probe()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.2)
    return answer


class Worker:
    """A distributed worker over a directory; start and stop it as often as you like."""

    def __init__(self, directory):
        self.directory = directory
        with socket.create_server(("127.0.0.1", 0)) as one:
            self.url = f"http://127.0.0.1:{one.getsockname()[1]}"
        layout = {} if LAYOUT == "-" else {"storage.layout": LAYOUT}
        converter = "org.apache.kafka.connect.storage.StringConverter"
        config = {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"{TOPIC}-connect",
            "listeners": self.url,
            "key.converter": converter,
            "value.converter": converter,
            "offset.flush.interval.ms": "500",
            "topic.creation.enable": "true",
            "plugin.discovery": "hybrid_warn",
            "status.storage.partitions": "1",
            "offset.storage.partitions": "5",
            "scheduled.rebalance.max.delay.ms": "0",
        }
        for kind, topic in INTERNAL.items():
            config |= {f"{kind}.storage.topic": topic, f"{kind}.storage.replication.factor": "1"}
            config |= {f"{kind}.storage.{name}": value for name, value in layout.items()}
        self.file = directory / "worker.properties"
        self.file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        self.process = None

    def start(self):
        command = ["java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-cp", "libs/*", "org.apache.kafka.connect.cli.ConnectDistributed", str(self.file)]
        with (self.directory / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(lambda: self.ask("GET", "/connectors")[0] == 200, "the worker")

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(WAIT)

    def ask(self, method, path, body=None):
        """Status and answer; status 0 while nobody listens."""
        assert self.process.poll() is None, f"the worker ended: {self.last_exception()}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError:
            return 0, None

    def last_exception(self):
        lines = (self.directory / "worker.log").read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if "Exception: " in line), "")[:300]

    def put(self, name, config):
        eventually(lambda: self.ask("PUT", f"/connectors/{name}/config", config)[0] in {200, 201}, f"connector {name}")

    def running(self, name):
        status, found = self.ask("GET", f"/connectors/{name}/status")
        if status != 200:
            return False
        states = [found["connector"]["state"], *(task["state"] for task in found["tasks"])]
        assert "FAILED" not in states, str(found)[:300]
        return states == ["RUNNING", "RUNNING"]


def internal_topics():
    worker.start()
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    for topic in INTERNAL.values():
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = admin.describe_configs([resource])[resource].result(WAIT)
        assert found["cleanup.policy"].value == "compact", f"cleanup.policy of {topic}: {found['cleanup.policy'].value}"
        assert LAYOUT == "-" or found["storage.layout"].value == LAYOUT


def source():
    given.write_text("".join(f"{line}\n" for line in LINES))
    created = {"replication.factor": "1", "partitions": "1"} | ({} if LAYOUT == "-" else {"storage.layout": LAYOUT})
    config = {"connector.class": "FileStreamSource", "tasks.max": "1", "file": str(given), "topic": TOPIC}
    worker.put(SOURCE, config | {f"topic.creation.default.{name}": value for name, value in created.items()})
    eventually(lambda: worker.running(SOURCE), "the source")
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    eventually(lambda: TOPIC in admin.list_topics(timeout=WAIT).topics, "the topic")


def taken():
    return out.read_text().splitlines() if out.exists() else []


def sink():
    config = {"connector.class": "FileStreamSink", "tasks.max": "1", "file": str(out), "topics": TOPIC}
    worker.put(SINK, config)
    eventually(lambda: len(taken()) >= len(LINES), "the lines")
    assert taken() == LINES, taken()[:20]


def offsets(name):
    status, found = worker.ask("GET", f"/connectors/{name}/offsets")
    return status == 200 and found["offsets"]


def status():
    for name in (SOURCE, SINK):
        eventually(lambda name=name: worker.running(name), name)
    (position,) = eventually(lambda: offsets(SOURCE), "the source's offsets")
    assert position["partition"] == {"filename": str(given)}, position
    eventually(lambda: offsets(SINK), "the sink's offsets")


def restart():
    worker.stop()
    more = [f"line {n}" for n in range(100, 200)]
    with given.open("a") as file:
        file.writelines(f"{line}\n" for line in more)
    worker.start()
    eventually(lambda: len(taken()) >= 200, "the lines behind the restart")
    assert taken() == LINES + more, taken()[95:110]


def reset():
    asked = worker.ask("PUT", f"/connectors/{SOURCE}/stop")
    assert asked[0] == 204, asked
    eventually(lambda: worker.ask("DELETE", f"/connectors/{SOURCE}/offsets")[0] == 200, "the reset")
    assert worker.ask("GET", f"/connectors/{SOURCE}/offsets")[1] == {"offsets": []}
    assert worker.ask("PUT", f"/connectors/{SOURCE}/resume")[0] == 202
    eventually(lambda: len(taken()) >= 400, "the lines a second time")
    assert taken()[200:] == taken()[:200], taken()[200:210]


def delete():
    for name in (SOURCE, SINK):
        eventually(lambda name=name: worker.ask("DELETE", f"/connectors/{name}")[0] in {204, 404}, f"{name} to go")
    worker.stop()
    worker.start()
    assert worker.ask("GET", "/connectors") == (200, [])


FEATURES = {
    "internal topics": internal_topics,
    "file source": source,
    "file sink": sink,
    "status": status,
    "restart": restart,
    "reset offsets": reset,
    "delete connectors": delete,
}

(jar,) = Path("libs").glob("connect-runtime-[0-9]*.jar")
print(json.dumps({"version": jar.stem.removeprefix("connect-runtime-")}), flush=True)
with ExitStack() as stack:
    home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    given, out = home / "given.txt", home / "out.txt"
    worker = Worker(home)
    stack.callback(worker.stop)
    for name, feature in FEATURES.items():
        try:
            feature()
            print(json.dumps({"feature": name, "ok": True}), flush=True)
        except Exception as e:
            print(json.dumps({"feature": name, "ok": False, "why": f"{type(e).__name__}: {e}"}), flush=True)
    print((home / "worker.log").read_text(errors="replace")[-20000:], file=sys.stderr)
