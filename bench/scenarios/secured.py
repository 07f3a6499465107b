"""Throughput with TLS, and with logins and ACLs; and a good client beside many that do not get in."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import ClassVar

from bench import tools
from bench.contestants import Server
from bench.guarded import LOGIN, OTHERS, PLAIN, TLS, TLS_LOGIN, TOPIC, guarded, java, librdkafka
from bench.model import Run, Sample, Target
from bench.processes import await_quiet, settle, watch
from bench.scenarios.base import Scenario
from bench.scenarios.throughput import timed
from bench.warm_up import warm_up

_COUNTS = {"100 B": 1_000_000, "1 KB": 200_000}
_SIZES = {"100 B": 100, "1 KB": 1000}
_KINDS = {"no security": PLAIN, "TLS": TLS, "SASL and ACLs": LOGIN, "TLS, SASL and ACLs": TLS_LOGIN}
_VERBS = ("produce", "consume")
_WARM_UP = 4  # a quarter as many records go over each listener first, uncounted

_STRANGERS = 999
_ALONE, _BESIDE = "alone", f"beside {_STRANGERS} bad clients"
_ONE, _MANY = "100 B, one at a time", "produce 1 KB"
_GOOD = ((_ONE, "java"), (_MANY, "kcat"))  # what the good client does, and with which program


class Secured(Scenario):
    """On a server of its own that has all listeners."""

    name: ClassVar[str] = "secured"
    title: ClassVar[str] = "TLS, SASL and ACLs, and bad clients"
    note: ClassVar[str] = (
        "On a server of its own, with a listener for each kind: without security, with TLS 1.3, and where clients log "
        f"in (PLAIN) with TLS and without. An authorizer with {OTHERS} ACLs of others decides on all of them; who does "
        "not log in is a super user. Kafka's keystore is PEM, as Ketch's. kcat as above, one partition. Bad clients: "
        f"one good client with TLS, SASL and ACLs, alone and while {_STRANGERS} others do not get in. A third of these "
        "begin a handshake of TLS and never finish it, a third send rubbish, a third log in with a wrong password "
        "(SCRAM-SHA-256); each comes again after a second. Latency: EndToEndLatency; rate: kcat. The program that is "
        "the bad clients shares the cores."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch", "kafka")
    quick: ClassVar[bool] = False
    targets: ClassVar[tuple[Target, ...]] = (
        *(Target("ketch-batch", "rate", least=1.0, loads=f"*, {kind}", to="kafka") for kind in list(_KINDS)[1:]),
        *(Target(name, "p99", loads=f"{_ONE}, {_BESIDE}", to_load=f"{_ONE}, {_ALONE}") for name in contestants),
        *(Target(name, "rate", loads=f"{_MANY}, {_BESIDE}", to_load=f"{_MANY}, {_ALONE}") for name in contestants),
    )

    def labels(self, contestant: str) -> list[str]:
        throughput = [f"{_load(verb, size, kind)}/kcat" for size in _SIZES for kind in _KINDS for verb in _VERBS]
        return throughput + [f"{load}, {when}/{client}" for when in (_ALONE, _BESIDE) for load, client in _GOOD]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        with guarded(server) as own:
            warm_up(own, run.factor)
            for size in _SIZES:
                for kind, listener in _KINDS.items():
                    if any(run.wants(f"{_load(verb, size, kind)}/kcat") for verb in _VERBS):
                        yield from _throughput(own, listener, size, kind, run)
            if any(run.wants(f"{load}, {_BESIDE}/{client}") for load, client in _GOOD):
                yield from _good_client(own, run, _ALONE)
                places = {"tls": own.listeners[TLS_LOGIN], "plain": own.listeners[LOGIN]}
                with tools.background("strangers", **places, count=_STRANGERS):
                    beside = list(_good_client(own, run, _BESIDE))
                yield from beside


def _load(verb: str, size: str, kind: str) -> str:
    return f"{verb} {size}, {kind}"


def _throughput(own: Server, listener: str, size: str, kind: str, run: Run) -> Iterator[Sample]:
    count, at, options = run.count(_COUNTS[size]), own.listeners[listener], librdkafka(listener)
    tools.kcat_produce(at, TOPIC, _SIZES[size], count // _WARM_UP, options=options)
    tools.kcat_consume(at, TOPIC, count // _WARM_UP, options)
    tools.lines(_SIZES[size], count)  # made before the clock runs
    works = {
        "produce": lambda: tools.kcat_produce(at, TOPIC, _SIZES[size], count, options=options),
        "consume": lambda: tools.kcat_consume(at, TOPIC, count, options),
    }
    for verb, work in works.items():
        (settle if verb == "produce" else await_quiet)(own.pid)
        with watch(own.pid) as usage:
            seconds = timed(work)
        yield Sample(_load(verb, size, kind), "kcat", "rate", count / seconds)
        yield Sample(_load(verb, size, kind), "kcat", "cpu", usage.cpu / count * 1e6)
    own.delete(TOPIC)
    own.create(TOPIC)


def _good_client(own: Server, run: Run, when: str) -> Iterator[Sample]:
    at, count = own.listeners[TLS_LOGIN], run.count(_COUNTS["1 KB"])
    await_quiet(own.pid)
    found = tools.end_to_end(at, TOPIC, run.count(1500, 500), 100, java())
    yield from (Sample(f"{_ONE}, {when}", "java", name, value) for name, value in found.items())
    tools.lines(_SIZES["1 KB"], count)
    seconds = timed(lambda: tools.kcat_produce(at, TOPIC, _SIZES["1 KB"], count, options=librdkafka(TLS_LOGIN)))
    yield Sample(f"{_MANY}, {when}", "kcat", "rate", count / seconds)
