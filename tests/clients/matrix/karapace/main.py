"""Karapace, a schema registry over a compacted topic; see ../README.md. `KARAPACE` names its Python interpreter."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

BOOTSTRAP, TOPIC, LAYOUT = sys.argv[1:]
PYTHON = os.environ["KARAPACE"]
GROUP = f"{TOPIC}-registry"
CONFIG = {} if LAYOUT == "-" else {"storage.layout": LAYOUT}
WAIT = 90
CHANGES = 40  # of one subject's compatibility, of which compaction leaves the newest


def eventually(probe, what):
    end = time.monotonic() + WAIT
    while not (answer := probe()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.2)
    return answer


def avro(*fields):
    """An Avro record with these fields; those after the first one have a default."""
    made = [{"name": name, "type": "long"} | ({"default": 0} if n else {}) for n, name in enumerate(fields)]
    return {"schema": json.dumps({"type": "record", "name": "Order", "fields": made})}


def no_default(name):
    """A version that cannot read what the ones before it have written."""
    fields = [{"name": "id", "type": "long"}, {"name": name, "type": "long"}]
    return {"schema": json.dumps({"type": "record", "name": "Order", "fields": fields})}


JSON = {"schemaType": "JSON", "schema": json.dumps({"type": "object", "properties": {"name": {"type": "string"}}})}
PROTOBUF = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3";\nmessage Order {\n  int64 id = 1;\n}\n'}


class Program:
    """A program of Karapace's with an address of its own; start and stop it as often as you like."""

    def __init__(self, directory, module, **settings):
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
        self.url, self.log, self.process = f"http://127.0.0.1:{port}", directory / f"{port}.log", None
        self.module = module
        settings |= {"bootstrap_uri": BOOTSTRAP, "host": "127.0.0.1", "port": port, "log_level": "INFO"}
        settings["advertised_hostname"] = "127.0.0.1"
        self.env = os.environ | {f"KARAPACE_{name.upper()}": str(value) for name, value in settings.items()}

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([PYTHON, "-m", self.module], env=self.env, stdout=log, stderr=log)
        eventually(self.ready, self.module)

    def ready(self):
        return self.ask("GET", "/topics", kind="kafka.v2")[0] == 200

    def stop(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, method, path, body=None, kind="schemaregistry.v1"):
        """Status and answer; status 0 while nobody listens."""
        assert self.process.poll() is None, f"{self.module} ended: {self.log.read_text(errors='replace')[-300:]}"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": f"application/vnd.{kind}+json", "Accept": f"application/vnd.{kind}+json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError:
            return 0, None

    def get(self, path):
        status, found = self.ask("GET", path)
        assert status == 200, f"{path}: {status} {found}"
        return found


class Registry(Program):
    """A registry over a topic, in a group that elects one of its registries."""

    def __init__(self, directory, topic, group):
        settings = {"karapace_registry": True, "waiting_time_before_acting_as_master_ms": 500}
        super().__init__(directory, "karapace", topic_name=topic, group_id=group, **settings)

    def ready(self):
        return self.status().get("schema_registry_ready")

    def status(self):
        status, found = self.ask("GET", "/_health")
        return found["status"] if status == 200 else {}

    def leads(self):
        return self.status().get("schema_registry_is_primary") is True

    def register(self, subject, schema):
        """The schema's id."""
        status, found = self.ask("POST", f"/subjects/{subject}/versions", schema)
        assert status == 200, f"{subject}: {status} {found}"
        return found["id"]

    def everything(self):
        """All it knows: each subject's setting, and its versions with their ids and schemas."""
        found = {}
        for subject in self.get("/subjects"):
            path = f"/subjects/{subject}/versions"
            versions = [self.get(f"{path}/{version}") for version in self.get(path)]
            found[subject] = (self.get(f"/config/{subject}?defaultToGlobal=true"), versions)
        return found


def config_of(topic):
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result(WAIT).items()}


def records(topic=TOPIC):
    """Offsets, keys and values of a topic's only partition."""
    reader = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": f"{topic}-look", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while not (message := reader.poll(WAIT)).error():
        found.append((message.offset(), message.key(), message.value()))
    reader.close()
    return found


def committed(group):
    """The offset that a group has committed of the topic of its name."""
    reader = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group})
    (position,) = reader.committed([TopicPartition(group, 0)], timeout=WAIT)
    reader.close()
    return position.offset


def schemas_topic():
    made = f"{TOPIC}.made"
    registry = Registry(home, made, f"{GROUP}-made")
    with ExitStack() as stopped:
        stopped.callback(registry.stop)
        registry.start()
        assert registry.get("/subjects") == []
    assert len(admin.list_topics(made, timeout=WAIT).topics[made].partitions) == 1
    assert config_of(made)["cleanup.policy"] == "compact", config_of(made)["cleanup.policy"]


def primary():
    # What is to be compacted does not wait for half of the topic to be new, nor, on Kafka, for a full segment.
    early = {"min.cleanable.dirty.ratio": "0", "segment.ms": "1000"}
    new = NewTopic(TOPIC, 1, 1, config={"cleanup.policy": "compact"} | early | CONFIG)
    admin.create_topics([new])[TOPIC].result(WAIT)
    first.start()
    eventually(first.leads, "the election")
    with warnings.catch_warnings(action="ignore"):  # deprecated, but what replaces it refuses groups of another type
        (group,) = admin.list_groups(GROUP, timeout=WAIT)
    assert (group.protocol_type, group.state, len(group.members)) == ("sr", "Stable", 1), vars(group)


def schemas():
    given = {"orders": avro("id"), "names": JSON, "calls": PROTOBUF}
    for subject, schema in given.items():
        number = first.register(subject, schema)
        assert first.register(subject, schema) == number
        read = first.get(f"/schemas/ids/{number}")["schema"]
        assert read.split() == schema["schema"].split() or json.loads(read) == json.loads(schema["schema"]), read
        latest = first.get(f"/subjects/{subject}/versions/latest")
        assert (latest["id"], latest["version"], latest["schema"]) == (number, 1, read), latest
    assert set(first.get("/subjects")) == set(given)


def compatibility():
    path = "/compatibility/subjects/orders/versions/latest"
    assert first.ask("POST", path, avro("id", "total")) == (200, {"is_compatible": True})
    first.register("orders", avro("id", "total"))
    assert first.get("/subjects/orders/versions") == [1, 2]
    assert first.ask("POST", path, no_default("note"))[1]["is_compatible"] is False
    assert first.ask("POST", "/subjects/orders/versions", no_default("note"))[0] == 409
    assert first.get("/subjects/orders/versions") == [1, 2]


def delete():
    first.register("gone", JSON)
    assert first.ask("DELETE", "/subjects/gone") == (200, [1])
    assert first.ask("DELETE", "/subjects/gone?permanent=true") == (200, [1])
    assert "gone" not in first.get("/subjects?deleted=true")


def restarted():
    """Stops and starts the registry: it has to know then what it knew."""
    known = first.everything()
    first.stop()
    first.start()
    assert first.everything() == known, f"{first.everything()}, not {known}"
    eventually(first.leads, "the election")


def setting_of(subject, keys):
    """The key among these of a subject's compatibility."""
    read = {key: json.loads(key) for key in keys}
    (found,) = (key for key, told in read.items() if (told["keytype"], told["subject"]) == ("CONFIG", subject))
    return found


def compaction():
    for n in range(CHANGES):
        level = "FULL" if n % 2 else "BACKWARD"
        assert first.ask("PUT", "/config/orders", {"compatibility": level})[0] == 200
    first.register("orders", avro("id", "total", "vat"))
    keys = {key for _, key, _ in records()}

    def compacted():
        # Another record, for Kafka: it begins a new segment only with one.
        assert first.ask("PUT", "/config/names", {"compatibility": "NONE"})[0] == 200
        return [key for _, key, _ in records()].count(setting_of("orders", keys)) == 1

    eventually(compacted, "the compaction")
    assert keys <= {key for _, key, _ in records()}
    assert first.get("/config/orders") == {"compatibilityLevel": "FULL"}
    restarted()
    first.register("orders", avro("id", "total", "vat", "discount"))
    assert first.get("/subjects/orders/versions") == [1, 2, 3, 4]


def rest_proxy():
    port = first.url.rpartition(":")[2]
    proxy = Program(home, "karapace.kafka_rest_apis", karapace_rest=True, registry_host="127.0.0.1", registry_port=port)
    topic, values = f"{TOPIC}.rest", [{"id": n} for n in range(10)]
    admin.create_topics([NewTopic(topic, 1, 1, config=CONFIG)])[topic].result(WAIT)
    with ExitStack() as stopped:
        stopped.callback(proxy.stop)
        proxy.start()
        given = {"value_schema": avro("id")["schema"], "records": [{"value": value} for value in values]}
        status, sent = proxy.ask("POST", f"/topics/{topic}", given, "kafka.avro.v2")
        assert status == 200, sent
        number = first.get(f"/subjects/{topic}-value/versions/1")["id"]
        assert sent["value_schema_id"] == number, sent
        assert {value[:5] for _, _, value in records(topic)} == {b"\0" + number.to_bytes(4)}
        assert taken(proxy, topic, len(values)) == values
    assert committed(topic) == records(topic)[-1][0] + 1


def taken(proxy, topic, count):
    """The values that a consumer of the proxy gets in a group."""
    made = {"name": "one", "format": "avro", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
    status, said = proxy.ask("POST", f"/consumers/{topic}", made, "kafka.v2")
    assert status == 200, said
    one = f"/consumers/{topic}/instances/one"
    assert proxy.ask("POST", f"{one}/subscription", {"topics": [topic]}, "kafka.v2")[0] == 204
    found = []

    def more():
        status, got = proxy.ask("GET", f"{one}/records?timeout=500", kind="kafka.avro.v2")
        assert status == 200, got
        found.extend(record["value"] for record in got)
        return len(found) >= count

    eventually(more, "the records")
    assert proxy.ask("POST", f"{one}/offsets", {}, "kafka.v2")[0] == 204
    assert proxy.ask("DELETE", one, kind="kafka.v2")[0] == 204
    return found


def elected():
    """The primary and the other one, once both agree; one just elected waits before it writes."""
    leader, follower = (second, first) if second.leads() else (first, second)
    known = follower.status().get("schema_registry_primary_url")
    return (leader, follower) if leader.leads() and not follower.leads() and known == leader.url else None


def two():
    second.start()
    leader, follower = eventually(elected, "one primary")
    number = follower.register("handed-on", avro("id"))
    assert leader.get("/subjects/handed-on/versions/1")["id"] == number
    number = leader.register("led", avro("id", "n"))
    eventually(lambda: follower.ask("GET", f"/schemas/ids/{number}")[0] == 200, "the follower to read it")
    assert follower.everything() == leader.everything()


def failover():
    leader, follower = eventually(elected, "one primary")
    known = leader.everything()
    highest = max(version["id"] for _, versions in known.values() for version in versions)
    leader.kill()
    eventually(follower.leads, "the follower to take over")
    assert follower.everything() == known
    assert follower.register("after", avro("after")) == highest + 1


FEATURES = {
    "schemas topic": schemas_topic,
    "primary": primary,
    "schemas": schemas,
    "compatibility": compatibility,
    "delete": delete,
    "restart": restarted,
    "compaction": compaction,
    "REST proxy": rest_proxy,
    "two registries": two,
    "failover": failover,
}

asked = [PYTHON, "-c", "from karapace import version; print(version.__version__)"]
said = subprocess.run(asked, capture_output=True, text=True, check=False)
assert said.returncode == 0, f"KARAPACE is no Python interpreter with Karapace: {said.stderr.strip()[-200:]}"
print(json.dumps({"version": said.stdout.strip()}), flush=True)
with ExitStack() as stack:
    home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    first, second = Registry(home, TOPIC, GROUP), Registry(home, TOPIC, GROUP)
    stack.callback(first.stop)
    stack.callback(second.stop)
    for name, feature in FEATURES.items():
        try:
            feature()
            print(json.dumps({"feature": name, "ok": True}), flush=True)
        except Exception as e:
            print(json.dumps({"feature": name, "ok": False, "why": f"{type(e).__name__}: {e}"}), flush=True)
    for log in home.glob("*.log"):
        print(log.read_text(errors="replace")[-20000:], file=sys.stderr)
