"""The append module under AddressSanitizer: hostile records through the command, on a real Valkey.

The module is built anew with the sanitizer and loaded into the embedded Valkey's binary. Its allocations and those of
the server are the sanitizer's then: a byte read or written beyond a record ends the server, with a report in its log.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ketch.append_module.library import module_path
from tests.append_module.test_against_other_ways import CORPUS, mutated
from tests.support.batches import record
from tests.support.modules import with_module

CASES = 60_000
SOURCE = Path(__file__).parents[2] / "src" / "ketch" / "append_module" / "csrc" / "append.c"
KINDS = ("set", "insert", "remove", "cut", "repeat")

# Valkey loads modules with RTLD_DEEPBIND, with which the sanitizer does not work.
SHALLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
void *dlopen(const char *file, int flags) {
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return next(file, flags & ~RTLD_DEEPBIND);
}
"""

pytestmark = pytest.mark.long(minutes=0.5)


def sanitizer() -> str:
    """The sanitizer's library; skips the test where the compiler has none."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    path = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    if not os.path.isabs(path.strip()):
        pytest.skip("gcc has no AddressSanitizer")
    return str(Path(path.strip()).resolve())


def some_records(chance: random.Random) -> tuple[bytes, int]:
    """Mostly well-formed."""

    def some(most: int) -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.randrange(most))

    count = chance.randrange(1, 8)
    made = []
    for n in range(count):
        headers = [(chance.randbytes(chance.randrange(4)), some(6)) for _ in range(chance.choice([0, 0, 1, 3, 40]))]
        delta = chance.choice([0, n, -n, chance.randrange(-(2**63), 2**63)])
        made.append(record(some(300), key=some(9), headers=headers, offset_delta=n, timestamp_delta=delta))
    return b"".join(made), count


def test_hostile_records_read_nothing_beyond_their_bytes(tmp_path: Path) -> None:
    assert module_path() is not None
    library, built = sanitizer(), tmp_path / "append.so"
    flags = ["-std=c99", "-g", "-O1", "-shared", "-fPIC", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", *flags, str(SOURCE), "-o", str(built)], check=True)
    (tmp_path / "shallow.c").write_text(SHALLOW)
    shallow = str(tmp_path / "shallow.so")
    subprocess.run(["gcc", "-shared", "-fPIC", str(tmp_path / "shallow.c"), "-o", shallow], check=True)
    options = "detect_leaks=0:abort_on_error=1:verify_asan_link_order=0"
    env = {**os.environ, "LD_PRELOAD": f"{shallow}:{library}", "ASAN_OPTIONS": options}
    server = with_module("valkey", tmp_path / "server", library=built, env=env)
    chance = random.Random(15)
    answers = {"stored": 0, "refused": 0}
    with closing(server.client()) as client:
        for number in range(CASES // 100):
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(100):
                    data, count = some_records(chance)
                    if chance.random() < 0.1:
                        data = chance.choice(CORPUS)
                    if chance.random() < 0.7:
                        data = mutated(
                            data,
                            [
                                (chance.choice(KINDS), chance.randrange(400), chance.randrange(256))
                                for _ in range(chance.randrange(1, 4))
                            ],
                        )
                    count = chance.choice([count, count, count, 1, 2**31 - 1])
                    state = chance.randbytes(chance.randrange(30))
                    producer = chance.choice([b"", b"7"])
                    command: list[Any] = ["KETCH.APPEND", "s", "p", "f"]
                    if chance.random() < 0.3:
                        command = ["KETCH.TXNAPPEND", "s", "p", "f", "t", chance.choice([b"", chance.randbytes(9)])]
                    pipeline.execute_command(
                        *command, "", "5-0", "9007199254740991-1022", 10, count, 0,
                        producer, b"", state, b"12", b"0:1:", "records", chance.choice([0, 2**63 - 1, -(2**63)]),
                        chance.choice(["", 5]), data,
                    )  # fmt: skip
                if number % 10 == 0:
                    pipeline.delete("s", "p", "t")
                for reply in pipeline.execute(raise_on_error=False):
                    answers["refused" if isinstance(reply, Exception) else "stored"] += 1
            client.delete("f")
        assert client.ping()
    assert min(answers.values()) > CASES // 10
    server.stop()
    assert b"Sanitizer" not in (tmp_path / "server" / "redis.log").read_bytes()
