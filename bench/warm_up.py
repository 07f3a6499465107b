"""The load before a round: turns of small and large requests until a turn costs the server what the one before cost.

Just-in-time compilers, allocators and caches make a server cheaper while it works: Kafka's fourth ten thousand of small
requests took a quarter of the CPU that its first took. This runs one contestant at a time and keeps no state. What a
turn costs is the server's CPU, its compiler's included: the rate is also that of the client and of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench import tools
from bench.contestants import Server, Valkey
from bench.processes import await_quiet, watch
from bench.wording import number

TOLERANCE = 0.05  # two turns whose costs differ by less are equal
MOST = 6  # turns
_TOPIC = "warm-up"
_COMPARABLE = 0.05  # part of the usual load: what a smaller turn costs says nothing, so there is one
_SMALL = 300_000  # records of 100 bytes that are sent ten by ten
_LARGE = 100_000  # in batches of 16 KB, and again in kcat's own
_COMMITS, _TRANSACTIONS = 100, 200
# The options of kcat: as slow producers have their batches, then as the Java client has them.
_TEN = ("-X", "batch.num.messages=10", "-X", "enable.idempotence=true")
_LIKE_JAVA = ("-X", "batch.size=16384", "-X", "enable.idempotence=true")
_FEW = ("-X", "fetch.message.max.bytes=8000")  # six batches of ten in an answer


def settled(costs: Sequence[float]) -> bool:
    """Whether the last two turns differ by less than TOLERANCE of the dearer one."""
    return len(costs) > 1 and abs(costs[-1] - costs[-2]) < TOLERANCE * max(costs[-2:])


def until_settled(turn: Callable[[], float], most: int = MOST) -> list[float]:
    """Calls `turn`, which returns what it cost, until two in a row cost the same, at most `most` times."""
    costs: list[float] = []
    while len(costs) < most and not settled(costs):
        costs.append(turn())
    return costs


def warm_up(server: Server, factor: float) -> list[float]:
    """Seconds of the server's CPU in each turn; `factor` is the part of the usual load."""
    load = _raw_load if isinstance(server, Valkey) else _load

    def turn() -> float:
        await_quiet(server.pid)
        with watch(server.pid) as usage:
            load(server, factor)
        return usage.cpu

    return until_settled(turn, MOST if factor >= _COMPARABLE else 1)


def told(name: str, costs: Sequence[float]) -> str:
    """One line for the terminal."""
    shown = ", ".join(map(number, costs))
    if len(costs) == 1:
        return f"{name}: warm-up of one turn, {shown} s of CPU; it is too small to compare with another"
    short = "" if settled(costs) else f"; NOT SETTLED: the last two differ by {TOLERANCE * 100:.0f} % or more"
    return f"{name}: warm-up of {len(costs)} turns, {shown} s of CPU{short}"


def _load(server: Server, factor: float) -> None:
    """The requests that the scenarios have: Produce and Fetch, small and large, commits and transactions."""
    at, small, large = server.kafka, _part(_SMALL, factor), _part(_LARGE, factor)
    server.create(_TOPIC)
    tools.kcat_produce(at, _TOPIC, 100, small, options=_TEN)
    tools.kcat_consume(at, _TOPIC, small, options=_FEW)
    tools.kcat_produce(at, _TOPIC, 100, large, options=_LIKE_JAVA)
    tools.kcat_produce(at, _TOPIC, 100, large)
    tools.kcat_consume(at, _TOPIC, small + 2 * large)
    tools.python(
        "confluent_client", verb="commit", server=at, topic=_TOPIC, group=_TOPIC, count=_part(_COMMITS, factor)
    )
    server.delete(_TOPIC)
    server.create(_TOPIC)
    tools.python("transactions", server=at, topic=_TOPIC, warm=0, count=_part(_TRANSACTIONS, factor))
    server.delete(_TOPIC)


def _raw_load(server: Server, factor: float) -> None:
    assert isinstance(server, Valkey)
    count = _part(_SMALL, factor)
    tools.raw(server, "produce", _TOPIC, count, 100)
    tools.raw(server, "consume", _TOPIC, count)
    server.store().unlink(_TOPIC)


def _part(full: int, factor: float) -> int:
    return max(10, int(full * factor))
