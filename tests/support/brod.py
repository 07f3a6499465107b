"""brod 0.4.3, Datadog's client of Kafka 0.6 in Python 2, turned into Python 3 when it is first used.

Its source comes through pip and stays in the cache with what is made of it (`KETCH_TEST_CACHE`); nothing of it is in
the repository. lib2to3 does what it can. What it cannot know is below: which strings are bytes, which division is of
whole numbers, and that an unsigned checksum was a signed one.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support import cache

PROGRAM = Path(__file__).parents[1] / "legacy07" / "brod_client.py"
MISSING = None if importlib.util.find_spec("lib2to3") else "lib2to3 missing: Python 3.13 is without it"

_VERSION = "0.4.3"
# By file: Python 2, and what it means in Python 3.
_CHANGES = {
    "base.py": (
        ("from cStringIO import StringIO", "from io import BytesIO as StringIO"),
        ("raw_message_length == ''", "raw_message_length == b''"),
        (
            "return binascii.crc32(value)",
            "return struct.unpack('>i', struct.pack('>I', binascii.crc32(value)))[0]",
        ),
        ("request = self._offsets_request(topic,", "request = self._offsets_request(topic.encode('utf-8'),"),
    ),
    "blocking.py": (("self._overflow = ''", "self._overflow = b''"), ("read_data = ''", "read_data = b''")),
    "simple.py": (("from collections import Mapping, defaultdict", "from collections import defaultdict"),),
    "zk.py": (
        ("from collections import namedtuple, Mapping, defaultdict", "from collections import namedtuple, defaultdict"),
        (
            "len(all_broker_partitions) / len(all_topic_consumers)",
            "len(all_broker_partitions) // len(all_topic_consumers)",
        ),
        ("FetchResult(sorted(message_sets))", "FetchResult(message_sets)"),
    ),
}


def _make(home: Path) -> None:
    cache.run(
        home, sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", f"brod=={_VERSION}"
    )
    with tarfile.open(home / f"brod-{_VERSION}.tar.gz") as archive:
        archive.extractall(home, filter="data")
    package = (home / f"brod-{_VERSION}" / "brod").rename(home / "brod")
    for name, changes in _CHANGES.items():
        text = (package / name).read_text()
        for old, new in changes:
            assert old in text, (name, old)
            text = text.replace(old, new)
        (package / name).write_text(text)
    files = [str(path) for path in package.glob("*.py") if path.name not in ("nonblocking.py", "util.py")]
    cache.run(home, sys.executable, "-W", "ignore", "-m", "lib2to3", "-w", "-n", *files)


def start(*arguments: str) -> subprocess.Popen[str]:
    """The program `tests/legacy07/brod_client.py`, see there."""
    home = cache.kept(f"brod-{_VERSION}", _make, Path(__file__).read_bytes())
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(PROGRAM), str(home), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(*arguments: str) -> object:
    """What the program prints, which is JSON."""
    with start(*arguments) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, arguments
    return json.loads(output)
