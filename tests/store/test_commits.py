"""Questions about groups and committed offsets, from replies made here: no server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from ketch.redis.question import Command, Question
from ketch.store.coordination import commits, groups
from ketch.store.coordination.commits import Committed
from ketch.store.coordination.terms import Overtaken
from ketch.store.keys import Keyspace
from ketch.store.scripts import Holder
from tests.support.questions import answered, words
from tests.support.replies import resp

T = TypeVar("T")
KEYS = Keyspace("k")
FIRST, SECOND = ("t", 0), ("t", 1)
HOLDER = Holder("1-a", 1, "0", may_take=True)


def told(question: Question[T], replies: dict[bytes, Any]) -> T:
    """The answer where Redis answers each command by its key."""
    return answered(question, lambda command: resp(replies[command[3] if command[0] == b"EVAL" else command[1]]))


def test_a_commit_counts_with_what_lies_beside_it() -> None:
    beside = b'[7, 3, 1000, "m"]'
    stored = {b"k:commit:k:stream:t:0:g": b"7", b"k:commit:k:stream:t:1:g": None, b"k:offsets:g": beside}
    assert told(commits.committed(KEYS, "g", [FIRST, SECOND]), stored) == {FIRST: Committed(7, 3, "m", 1000)}
    stored[b"k:commit:k:stream:t:0:g"] = b"8"  # SET by another Redis client since
    assert told(commits.committed(KEYS, "g", [FIRST, SECOND]), stored) == {FIRST: Committed(8)}


@pytest.mark.parametrize("value", [b"x", b"", b"9223372036854775808"])
def test_what_is_no_offset_is_no_commit(value: bytes) -> None:
    stored = {b"k:commit:k:stream:t:0:g": value, b"k:offsets:g": None}
    assert told(commits.committed(KEYS, "g", [FIRST]), stored) == {}


def test_nothing_to_store_asks_nothing() -> None:
    told(commits.store(KEYS, "g", {}, "4"), {})
    told(commits.describe(KEYS, "g", {}), {})


def test_details_of_a_commit_that_is_refused_are_put_back() -> None:
    described: list[list[bytes]] = []

    def reply(command: list[bytes]) -> bytes:
        if command[0] == b"HMGET":
            return resp([b"later", None])
        if command[0] == b"HSET":
            described.append(command[2:])
            return resp(1)
        return resp(b"9" if command[3].endswith(b":0:g") else None)

    with pytest.raises(Overtaken, match="group g") as refused:
        answered(commits.store(KEYS, "g", {FIRST: Committed(5), SECOND: Committed(6)}, "4"), reply)
    assert refused.value.term == 9
    (first, second) = described
    assert first[::2] == [b"t:0", b"t:1"]
    assert second == [b"t:0", b"later"]


def test_the_groups_that_commit_keys_name() -> None:
    prefix = b"k:commit:k:stream:"
    names = [b"t:0:g", b"t:1:a:b", b"t:2:g", b"t:x:g", b"u:0:g", b"t:0:\xff", b"t"]
    found = commits.by_group(KEYS, [prefix + name for name in names], {"t": 2})
    assert found == {"g": [FIRST], "a:b": [SECOND]}


def test_a_refused_term_names_its_holder() -> None:
    with pytest.raises(Overtaken, match="2-b"):
        told(groups.hold(KEYS, "g", HOLDER), {b"k:groups": 0, b"k:group:g": [0, b"2-b"]})
    assert told(groups.hold(KEYS, "g", HOLDER), {b"k:groups": 0, b"k:group:g": [1, b"17"]}) == "17"


@pytest.mark.parametrize(
    ("stored", "above", "term", "scripts"),
    [
        ([b"17", b"1-a"], 0, "17", 0),  # this process's own term: nothing would be written
        ([b"17", b"1-a"], 17, "18", 1),  # a higher one is asked for
        ([b"17", b"2-b"], 0, "18", 1),  # another process's, which the script may take
        ([b"18", b"1-a"], 0, "18", 1),  # written since it was loaded, which the script refuses
        ([None, None], 0, "18", 1),  # deleted since
    ],
)
def test_a_script_holds_a_term_only_where_a_look_is_not_enough(
    stored: list[bytes | None], above: int, term: str, scripts: int
) -> None:
    asked = []

    def reply(command: list[bytes]) -> bytes:
        asked.append(command[0])
        return resp(stored if command[0] == b"HMGET" else [1, b"18"])

    assert answered(groups.hold(KEYS, "g", Holder("1-a", 1, "17", may_take=True), above), reply) == term
    assert asked.count(b"EVAL") == scripts


def routed(question: Question[T], reply: Callable[[Command], bytes]) -> None:
    """Answers a question's commands until it ends."""
    try:
        asked: Sequence[Command] = next(question)
        while True:
            asked = question.send([reply(command) for command in asked])
    except StopIteration:
        pass


QUESTIONS: dict[str, Callable[[], Question[Any]]] = {
    "hold": lambda: groups.hold(KEYS, "g", HOLDER),
    "hold again": lambda: groups.hold(KEYS, "g", Holder("1-a", 1, "4", may_take=True)),
    "save": lambda: groups.save(KEYS, "g", HOLDER, {"state": "Empty"}),
    "journal": lambda: groups.journal(KEYS, "g"),
    "store": lambda: commits.store(KEYS, "g", {FIRST: Committed(5), SECOND: Committed(6)}, "4"),
    "remove": lambda: commits.remove(KEYS, "g", [FIRST, SECOND], "4"),
    "forget_topic": lambda: commits.forget_topic(KEYS, ["g", "h"], "t", 2),
    "delete": lambda: groups.delete(KEYS, "g", [FIRST], "4"),
    "adopt": lambda: commits.adopt(KEYS, {"g": [FIRST]}, 1),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_command_travels_with_its_key(name: str) -> None:
    """So that a driver for several nodes can route it."""

    def reply(command: Command) -> bytes:
        asked = words(command)
        at = {b"EVAL": 3, b"XGROUP": 2}.get(asked[0], 1)
        assert command.key == asked[at]
        answers = {b"HKEYS": [], b"HMGET": [None], b"GET": b"5", b"HGET": None}
        term = asked[0] == b"EVAL" and asked[3].startswith(b"k:group:")
        if asked[0] == b"EVAL" and asked[3].startswith(b"k:shares:"):
            return resp([0, []])
        return resp([1, b"4"] if term else None if asked[0] == b"EVAL" else answers.get(asked[0], 0))

    routed(QUESTIONS[name](), reply)
