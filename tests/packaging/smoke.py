"""What an installed Ketch does as the first thing: `ketch serve` is started, and a client of Kafka writes and reads.

    PYTHON smoke.py

Run by the Python of an environment that has nothing but Ketch; this file stands alone. It fails where a part is missing
that only the wheel can bring: a kernel, the append module, the embedded Valkey, the console's pages and static files.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any

KETCH = str(Path(sysconfig.get_path("scripts")) / "ketch")
READY = re.compile(r"ketch ready: kafka 127\.0\.0\.1:(\d+), .* http 127\.0\.0\.1:(\d+).*")
RECORDS = 1000
SECONDS = 60


def main() -> None:
    shown = subprocess.run([KETCH, "--version"], capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    assert shown.startswith(f"ketch {version('ketch')} (kernel cython, Python {sys.version.split()[0]}"), shown
    with tempfile.TemporaryDirectory(prefix="ketch-") as directory:
        command = [KETCH, "serve", "--port", "0", "--http-port", "0", "--console", "--data-dir", f"{directory}/data"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("KETCH_", "PYTHON"))}
        with (
            Path(directory, "log").open("w+b") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=directory) as broker,
        ):
            try:
                port, http = wait_until_ready(broker)
                write_and_read(f"127.0.0.1:{port}")
                look(f"http://127.0.0.1:{http}")
            finally:
                broker.send_signal(signal.SIGTERM)
                status = broker.wait(SECONDS)
                log.seek(0)
                print(log.read().decode(errors="replace"), file=sys.stderr)
    assert status == 0, status
    print(json.dumps({"version": version("ketch"), "python": sys.version.split()[0], "records": RECORDS}))


def wait_until_ready(broker: subprocess.Popen[bytes]) -> tuple[str, str]:
    """The ports of Kafka and HTTP."""
    assert broker.stdout is not None
    line = broker.stdout.readline().decode()
    found = READY.match(line)
    assert found, line
    assert "kernel cython, append module" in line, line
    return found[1], found[2]


def write_and_read(bootstrap: str) -> None:
    """Through librdkafka, which every installation has."""
    from confluent_kafka import Consumer, Producer

    written = [(f"k{n}".encode(), f"value {n}".encode()) for n in range(RECORDS)]
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd"})
    for key, value in written:
        producer.produce("smoke", value, key)
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "smoke", "auto.offset.reset": "earliest"})
    consumer.subscribe(["smoke"])
    read: list[Any] = []
    while len(read) < RECORDS:
        message = consumer.poll(SECONDS)
        assert message is not None, f"{len(read)} records were read"
        assert message.error() is None, message.error()
        read.append((message.key(), message.value()))
    consumer.close()
    assert read == written


def look(site: str) -> None:
    """The console's page, and every file that the page names."""
    for path in ("/healthz", "/metrics"):
        with urllib.request.urlopen(site + path, timeout=SECONDS) as answer:
            assert answer.status == 200, path
    with urllib.request.urlopen(site, timeout=SECONDS) as answer:
        page = answer.read().decode()
    files = re.findall(r'(?:src|href)="([^"]*static[^"]*)"', page)
    assert len(files) > 2, page
    for file in files:
        with urllib.request.urlopen(site + file, timeout=SECONDS) as answer:
            assert answer.status == 200, file


if __name__ == "__main__":
    main()
