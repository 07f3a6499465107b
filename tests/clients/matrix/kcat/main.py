"""kcat through the matrix; see ../README.md. It is a program, so this one starts it for each step."""

import json
import re
import subprocess
import sys

BOOTSTRAP, TOPIC, LAYOUT = sys.argv[1:]
GROUP, SHORT = f"{TOPIC}-group", f"{TOPIC}.short"
WAIT = 60
NONE = "kcat has no such command"
produced = {}  # key -> (partition, value, headers)


class HasNone(Exception):
    """The client has nothing for this feature."""


def kcat(*arguments, given=b""):
    command = ["kcat", "-b", BOOTSTRAP, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, timeout=WAIT)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-300:]
    return done.stdout


def produce(records, *arguments, topic=TOPIC):
    """One call for each partition: records are key, value; `~` stands between them."""
    for partition in sorted({p for p, _, _ in records}):
        lines = [(key, value) for p, key, value in records if p == partition]
        given = b"".join(key + b"~" + value + b"\n" for key, value in lines)
        kcat("-P", "-t", topic, "-p", str(partition), "-K", "~", *arguments, given=given)
        if topic == TOPIC:
            produced.update({key: (partition, value, "") for key, value in lines})


def create_topic():
    raise HasNone("kcat creates no topics")


def codec(name):
    names = [f"{name}-{n}" for n in range(10)]
    produce([(n % 2, key.encode(), f"value of {key} {'x' * 100}".encode()) for n, key in enumerate(names)], "-z", name)


def nulls():
    kcat("-P", "-t", TOPIC, "-p", "0", given=b"no key\n")
    kcat("-P", "-t", TOPIC, "-p", "0", "-K", "~", "-Z", given=b"tombstone~\n")
    produced[b""] = (0, b"no key", "")
    produced[b"tombstone"] = (0, b"", "")


def headers():
    raise HasNone("its command line takes no header with a zero byte")


def idempotent():
    names = [f"idempotent-{n}".encode() for n in range(5)]
    produce([(1, name, name) for name in names], "-X", "enable.idempotence=true")


def consume(*arguments):
    said = kcat("-f", "%p~%k~%s~%h~%T~%o\n", "-q", *arguments)
    return [line.split(b"~") for line in said.splitlines()]


def group():
    rows = consume("-X", "auto.offset.reset=earliest", "-c", str(len(produced)), "-G", GROUP, TOPIC)
    found = {row[1]: (int(row[0]), row[2], row[3].decode()) for row in rows}
    assert found == produced, f"{len(found)} records came, or other ones"


def commit():
    again = consume("-X", "auto.offset.reset=earliest", "-e", "-G", GROUP, TOPIC)
    assert again == [], f"a second member was given {len(again)} records again"


def lag():
    raise HasNone(NONE)


def transaction():
    raise HasNone("kcat commits a transaction, but cannot abort one")


def seek():
    rows = consume("-C", "-t", TOPIC, "-p", "0", "-o", "beginning", "-e")
    wanted = next(row for row in rows if row[1] == b"snappy-0")
    first_then = next(row for row in rows if int(row[4]) >= int(wanted[4]))
    (first,) = consume("-C", "-t", TOPIC, "-p", "0", "-o", f"s@{int(wanted[4])}", "-c", "1")
    assert first == first_then, first
    said = kcat("-Q", "-t", f"{TOPIC}:0:{int(wanted[4])}").decode()
    assert re.search(rf"\boffset {first_then[5].decode()}\b", said), said


FEATURES = {
    "create topic": create_topic,
    **{f"produce {name}": lambda name=name: codec(name) for name in ["none", "gzip", "snappy", "lz4", "zstd"]},
    "null key and value": nulls,
    "headers": headers,
    "idempotent producer": idempotent,
    "consume in a group": group,
    "commit": commit,
    "lag": lag,
    "seek by timestamp": seek,
    "transaction": transaction,
}
ORDER = [*list(FEATURES)[:-1], "list groups", "alter config", "delete records", "delete topic", "transaction"]

said = subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
kcat_version, librdkafka = re.findall(r"(?:Version|librdkafka) ([\d.]+)", said)
print(json.dumps({"version": f"{kcat_version} (librdkafka {librdkafka})"}))
for name in ORDER:
    line = {"feature": name}
    try:
        FEATURES.get(name, lag)()
        line["ok"] = True
    except HasNone as e:
        line["none"] = str(e)
    except Exception as e:
        line |= {"ok": False, "why": f"{type(e).__name__}: {e}"}
    print(json.dumps(line), flush=True)
