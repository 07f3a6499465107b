"""Kafka's command-line tools through steps of their own, their output checked; see ../README.md."""

import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP, TOPIC, LAYOUT = sys.argv[1:]
GROUP = f"{TOPIC}-group"
COUNT = 2000
WAIT = 120
TOOLS = "org.apache.kafka.tools"
SERVER = ("--bootstrap-server", BOOTSTRAP)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
JAVA = ("java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", "libs/*")


def tool(name, *arguments, given="", server=SERVER):
    """Runs a tool; the lines that it printed."""
    main = name if "." in name and name.startswith("kafka.") else f"{TOOLS}.{name}"
    command = [*JAVA, main, *server, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 0, (done.stdout + done.stderr)[-400:]
    return done.stdout.splitlines()


def create(topic, partitions=1):
    """Through librdkafka: kafka-topics refuses a config that it does not know, such as the layout."""
    config = {} if LAYOUT == "-" else {"storage.layout": LAYOUT}
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(WAIT)


def rows(lines):
    """The rows below the headline, by column."""
    head = max(n for n, line in enumerate(lines) if line.startswith(("GROUP", "TOPIC")))
    return [dict(zip(lines[head].split(), line.split(), strict=False)) for line in lines[head + 1 :] if line.strip()]


def offsets(time, topic=TOPIC):
    return [int(line.split(":")[-1]) for line in tool("GetOffsetShell", "--topic", topic, "--time", str(time))]


def topics():
    create(TOPIC)
    create(f"{TOPIC}.perf", 3)
    new = ["--topic", f"{TOPIC}.gone", "--partitions", "1", "--config", "retention.ms=5000000"]
    said = tool("TopicCommand", "--create", *new)
    assert f"Created topic {TOPIC}.gone." in said, said
    described = tool("TopicCommand", "--describe", "--topic", f"{TOPIC}.gone")
    assert "retention.ms=5000000" in described[0], described
    described = tool("TopicCommand", "--describe", "--topic", TOPIC)
    assert "PartitionCount: 1" in described[0], described
    assert LAYOUT != "batch" or "storage.layout=batch" in described[0], described  # a default is not shown
    tool("TopicCommand", "--alter", "--topic", f"{TOPIC}.gone", "--partitions", "3")
    assert len(tool("TopicCommand", "--describe", "--topic", f"{TOPIC}.gone")) == 4
    tool("TopicCommand", "--delete", "--topic", f"{TOPIC}.gone")
    there = tool("TopicCommand", "--list")
    assert TOPIC in there, there
    assert f"{TOPIC}.gone" not in there, there


def console_producer():
    for codec in CODECS:
        lines = "".join(f"text:{codec}\tkey-{codec}\tvalue of {codec} {n}\n" for n in range(3))
        parse = ["--property", "parse.key=true", "--property", "parse.headers=true"]
        tool("ConsoleProducer", "--topic", TOPIC, "--compression-codec", codec, *parse, given=lines)


def console_consumer():
    shown = ["print.key", "print.headers", "print.timestamp", "print.offset"]
    properties = [word for name in shown for word in ("--property", f"{name}=true")]
    said = tool(
        "consumer.ConsoleConsumer",
        *("--topic", TOPIC, "--from-beginning", "--max-messages", "15", "--timeout-ms", "30000"),
        *("--group", GROUP, *properties),
    )
    expected = [f"text:{codec}\tkey-{codec}\tvalue of {codec} {n}" for codec in CODECS for n in range(3)]
    found = [line.split("\t", 2) for line in said]
    assert [line[2] for line in found] == expected, said
    assert all(re.fullmatch(r"CreateTime:\d{13}", line[0]) for line in found), said
    numbers = [int(line[1].removeprefix("Offset:")) for line in found]
    assert numbers == sorted(set(numbers)), numbers


def groups():
    name = "consumer.group.ConsumerGroupCommand"
    assert GROUP in tool(name, "--list")
    (row,) = rows(tool(name, "--describe", "--group", GROUP))
    (end,) = offsets(-1)
    assert (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == (str(end), str(end), "0"), row
    assert "Empty" in tool(name, "--describe", "--state", "--group", GROUP)[-1]
    reset = ["--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--execute"]
    (moved,) = rows(tool(name, *reset, "--to-earliest"))
    assert moved["NEW-OFFSET"] == str(offsets(-2)[0]), moved
    (row,) = rows(tool(name, "--describe", "--group", GROUP))
    assert int(row["LAG"]) > 0, row
    (moved,) = rows(tool(name, *reset, "--to-datetime", "2020-01-01T00:00:00.000"))
    first = int(moved["NEW-OFFSET"])
    assert offsets(-2)[0] <= first < end, moved
    tool(name, "--delete", "--group", GROUP)
    assert GROUP not in tool(name, "--list")


def get_offsets():
    (start,), (end,) = offsets(-2), offsets(-1)
    assert start < end, (start, end)
    (by_time,) = offsets(1)
    assert start <= by_time < end, by_time


def configs():
    where = ["--entity-type", "topics", "--entity-name", TOPIC]
    said = tool("kafka.admin.ConfigCommand", "--alter", *where, "--add-config", "retention.ms=5000000")
    assert said == [f"Completed updating config for topic {TOPIC}."], said
    shown = " ".join(tool("kafka.admin.ConfigCommand", "--describe", *where))
    assert "retention.ms=5000000 " in shown, shown
    tool("kafka.admin.ConfigCommand", "--alter", *where, "--delete-config", "retention.ms")
    shown = " ".join(tool("kafka.admin.ConfigCommand", "--describe", *where))
    assert "retention.ms=5000000 " not in shown, shown


def delete_records():
    (end,) = offsets(-1)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "offsets.json"
        file.write_text(json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "offset": end - 1}]}))
        said = tool("DeleteRecordsCommand", "--offset-json-file", str(file))
    assert f"low_watermark: {end - 1}" in " ".join(said), said
    assert offsets(-2) == [end - 1]


def producer_perf():
    size = ["--num-records", str(COUNT), "--record-size", "100", "--throughput", "-1"]
    servers = ["--producer-props", f"bootstrap.servers={BOOTSTRAP}"]
    said = tool("ProducerPerformance", "--topic", f"{TOPIC}.perf", *size, *servers, server=())
    assert said[-1].startswith(f"{COUNT} records sent"), said


def consumer_perf():
    wanted = ["--topic", f"{TOPIC}.perf", "--messages", str(COUNT), "--group", f"{TOPIC}-perf", "--timeout", "30000"]
    header, row = tool("ConsumerPerformance", *wanted)[-2:]
    found = dict(zip(header.split(", "), row.split(", "), strict=True))
    assert found["data.consumed.in.nMsg"] == str(COUNT), found


def verifiable_producer():
    create(f"{TOPIC}.verified")
    said = tool("VerifiableProducer", "--topic", f"{TOPIC}.verified", "--max-messages", "50", "--acks", "-1")
    sent = [json.loads(line) for line in said]
    values = [line["value"] for line in sent if line["name"] == "producer_send_success"]
    assert sorted(map(int, values)) == list(range(50)), values
    assert (sent[-1]["sent"], sent[-1]["acked"]) == (50, 50), sent[-1]


def verifiable_consumer():
    group = f"{TOPIC}-verified"
    options = ["--topic", f"{TOPIC}.verified", "--group-id", group, "--max-messages", "50", "--verbose"]
    command = [*JAVA, f"{TOOLS}.VerifiableConsumer", *SERVER, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        killer = threading.Timer(WAIT, process.kill)
        killer.start()
        events = []
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["name"] == "offsets_committed" and read(events) >= 50:
                process.send_signal(signal.SIGTERM)
        killer.cancel()
    values = [int(event["value"]) for event in events if event["name"] == "record_data"]
    assert values == list(range(50)), values
    assert any(event["name"] == "partitions_assigned" for event in events), events
    assert all(event["success"] for event in events if event["name"] == "offsets_committed"), events
    (row,) = rows(tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", group))
    assert row["LAG"] == "0", row


def read(events):
    return sum(event["count"] for event in events if event["name"] == "records_consumed")


FEATURES = {
    "kafka-topics": topics,
    "kafka-console-producer": console_producer,
    "kafka-console-consumer": console_consumer,
    "kafka-consumer-groups": groups,
    "kafka-get-offsets": get_offsets,
    "kafka-configs": configs,
    "kafka-delete-records": delete_records,
    "kafka-producer-perf-test": producer_perf,
    "kafka-consumer-perf-test": consumer_perf,
    "kafka-verifiable-producer": verifiable_producer,
    "kafka-verifiable-consumer": verifiable_consumer,
}

(jar,) = Path("libs").glob("kafka-tools-[0-9]*.jar")
print(json.dumps({"version": jar.stem.removeprefix("kafka-tools-")}), flush=True)
for name, feature in FEATURES.items():
    try:
        feature()
        print(json.dumps({"feature": name, "ok": True}), flush=True)
    except Exception as e:
        print(json.dumps({"feature": name, "ok": False, "why": f"{type(e).__name__}: {e}"}), flush=True)
