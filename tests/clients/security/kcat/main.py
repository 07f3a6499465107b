"""kcat logs in as it is told, writes and reads; see ../README.md. Each order is a process of its own."""

import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from orders import serve

WAIT = 20


def options(login):
    own = {"ssl.certificate.location": login.get("own"), "ssl.key.location": login.get("own")}
    given = {"client.id": login["client"], "ssl.ca.location": login["ca"], "security.protocol": "SASL_SSL"}
    given |= {"sasl.mechanism": login["mechanism"], "message.timeout.ms": "5000"}
    if login["mechanism"] == "mTLS":
        del given["sasl.mechanism"]
        given |= {**own, "security.protocol": "SSL"}
    else:
        given |= {"sasl.username": login["user"], "sasl.password": login["password"]}
    words = [word for key, value in given.items() for word in ("-X", f"{key}={value}")]
    return ["-b", login["bootstrap"], *words]


def run(order, *words, given=""):
    command = ["kcat", *options(order["login"]), *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=WAIT)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def write(order):
    run(order, "-P", "-t", order["topic"], given=order["value"])
    return {"ok": True}


def read(order):
    words = ("-X", "auto.offset.reset=earliest", "-c", str(order["count"]), "-q", "-G", order["group"], order["topic"])
    return {"values": run(order, *words).splitlines()}


said = subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
found = re.search(r"Version (\S+).*librdkafka (\S+)", said, re.DOTALL)
serve(f"{found[1]}, librdkafka {found[2]}", {"write": write, "read": read, "close": lambda _: {"ok": True}})
