"""Kafka Streams with exactly_once_v2: a word count and a join, while its instances, brokers and Valkey are killed.

Two instances run chaos/streams. Whichever is killed is started again, on the state it had. In the end readers of
committed records get the true counts: of each word 1, 2, 3, ... in this order, once each. And they get each pair of the
two joined topics once. `KETCH_STREAMS_KILLS=50` makes more kills than six; the seed is printed with a failure.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.chaos.victims import Restarted, World
from tests.support.cache import kept, maven, missing
from tests.support.ketch import eventually

MISSING = missing("java", "javac", "mvn", why="Kafka Streams comes through Maven")
pytestmark = [pytest.mark.long(minutes=3), pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

KILLS = int(os.environ.get("KETCH_STREAMS_KILLS", "6"))
TOPICS = {"lines": 2, "left": 2, "right": 2, "counts": 1, "pairs": 1}
ROUND = 600  # lines that are written before each kill, and pairs
WORDS = 20
WAIT = 180.0
SOURCE = Path(__file__).parent / "streams"


def program() -> list[str]:
    """The command of an instance, without its arguments; compiled once, cached by content."""

    def build(home: Path) -> None:
        shutil.copytree(SOURCE, home, dirs_exist_ok=True)
        maven(home, "compile", "dependency:copy-dependencies", f"-DoutputDirectory={home / 'target' / 'libs'}")

    files = sorted(path for path in SOURCE.rglob("*") if path.is_file())
    target = kept("chaos-streams", build, *(path.read_bytes() for path in files)) / "target"
    options = ["-Xmx192M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return ["java", *options, "-cp", f"{target / 'classes'}:{target / 'libs'}/*", "Instance"]


@pytest.fixture(params=[(1, "record", "time"), (2, "batch", "dense")], ids=str)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, *request.param, TOPICS)
    yield made
    made.stop()


@pytest.fixture
def instances(world: World, tmp_path: Path) -> Iterator[list[Restarted]]:
    directories = [tmp_path / f"instance-{n}" for n in range(2)]
    command = [*program(), world.bootstrap, "application"]
    started = []
    for directory in directories:
        directory.mkdir()
        started.append(Restarted([*command, str(directory)], directory / "log"))
        started[-1].start()
    yield started
    for each in started:
        each.stop()


class Truth:
    """What has been written, and what must come of it."""

    def __init__(self, bootstrap: str, chosen: random.Random) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._chosen, self._next = chosen, 0
        self.counts: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()

    def write_on(self) -> None:
        """Each key of the joined topics comes in one round, with one to two records on each side."""
        for n in range(self._next, self._next + ROUND):
            words = [f"w{self._chosen.randrange(WORDS)}" for _ in range(self._chosen.randint(1, 3))]
            self._producer.produce("lines", " ".join(words), partition=n % TOPICS["lines"])
            self.counts.update(words)
            sides = {side: [f"{side}{n}-{i}" for i in range(self._chosen.randint(1, 2))] for side in ("left", "right")}
            for side, values in sides.items():
                for value in values:
                    self._producer.produce(side, value, key=f"k{n}")
            self.pairs.update((f"k{n}", f"{one}|{other}") for one in sides["left"] for other in sides["right"])
        assert self._producer.flush(60) == 0
        self._next += ROUND


class Results:
    """What a reader of committed records has got so far, by topic."""

    def __init__(self, bootstrap: str) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0}
        self._consumer = Consumer({**config, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in ("counts", "pairs")])
        self.found: dict[str, list[tuple[str, str]]] = {"counts": [], "pairs": []}

    def wait(self, counts: int, pairs: int, why: object) -> None:
        """Until there are so many, and nothing more comes."""

        def enough() -> bool:
            messages = [each for each in self._consumer.consume(500, 1.0) if not each.error()]
            for message in messages:
                self.found[message.topic()].append((message.key().decode(), message.value().decode()))
            return not messages and len(self.found["counts"]) >= counts and len(self.found["pairs"]) >= pairs

        try:
            eventually(enough, WAIT)
        except AssertionError as late:
            sizes = {topic: len(found) for topic, found in self.found.items()}
            raise AssertionError(f"{sizes} of {counts} counts and {pairs} pairs: {why}") from late

    def close(self) -> None:
        self._consumer.close()


def test_counts_and_pairs_are_true(world: World, instances: list[Restarted]) -> None:
    """Each kill comes upon a round that has just been written, when the one before it is done."""
    seed = random.randrange(10_000)
    chosen, done = random.Random(seed), list[str]()
    truth, results = Truth(world.bootstrap, chosen), Results(world.bootstrap)
    kills = ["instance", "broker", "valkey", "instance"]
    kills += [chosen.choice(kills) for _ in range(KILLS - len(kills))]
    for kind in kills:
        truth.write_on()
        world.kill(kind, chosen, instances)
        done.append(kind)
        results.wait(truth.counts.total(), truth.pairs.total(), (seed, done))
    results.close()

    counts = defaultdict[str, list[int]](list)
    for word, count in results.found["counts"]:
        counts[word].append(int(count))
    assert counts == {word: list(range(1, total + 1)) for word, total in truth.counts.items()}, (seed, done)
    assert Counter(results.found["pairs"]) == truth.pairs, (seed, done)
