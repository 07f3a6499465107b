"""Questions about native consumer groups, from replies made here: no server."""

from __future__ import annotations

import pytest

from ketch.errors import RedisError
from ketch.store.coordination import native
from ketch.store.coordination.native import NativeGroup
from ketch.store.stream import counting
from tests.support.questions import answered, words
from tests.support.replies import resp
from tests.support.stored import partition

NO_KEY = RedisError("ERR no such key")
ROW: list[object] = [b"name", b"g", b"consumers", 1, b"pending", 2, b"last-delivered-id", b"5-1"]


def test_groups_of_a_stream() -> None:
    old = answered(native.groups(b"s"), lambda _: resp([ROW]))
    assert old == {"g": NativeGroup("g", 1, 2, (5, 1), None, None)}
    new = answered(native.groups(b"s"), lambda _: resp([[*ROW, b"entries-read", 7, b"lag", 3]]))
    assert new == {"g": NativeGroup("g", 1, 2, (5, 1), 7, 3)}


def test_a_stream_that_does_not_exist_has_no_groups() -> None:
    assert answered(native.groups(b"s"), lambda _: resp(NO_KEY)) == {}
    with pytest.raises(RedisError, match="WRONGTYPE"):
        answered(native.groups(b"s"), lambda _: resp(RedisError("WRONGTYPE another kind of value")))


def test_a_group_on_several_streams() -> None:
    replies = {b"s": resp([ROW]), b"t": resp(NO_KEY), b"u": resp([[b"name", b"other", *ROW[2:]], ROW])}
    found = answered(native.named([b"s", b"t", b"u"], "g"), lambda asked: replies[asked[-1]])
    assert found == [NativeGroup("g", 1, 2, (5, 1), None, None), None, NativeGroup("g", 1, 2, (5, 1), None, None)]
    with pytest.raises(StopIteration):  # it asks nothing
        next(native.named([], "g"))


def test_making_a_group_that_is_there() -> None:
    asked = []

    def reply(command: list[bytes]) -> bytes:
        asked.append(command)
        return resp(RedisError("BUSYGROUP Consumer Group name already exists"))

    answered(native.create(b"s", "g", (5, 1), 7), reply)
    assert asked == [[b"XGROUP", b"CREATE", b"s", b"g", b"5-1", b"ENTRIESREAD", b"7"]]
    assert words(native.move_command(b"s", "g", (5, 1), None)) == [b"XGROUP", b"SETID", b"s", b"g", b"5-1"]


def test_making_a_group_on_many_streams() -> None:
    replies = {
        b"new": "OK",
        b"there": RedisError("BUSYGROUP Consumer Group name already exists"),
        b"missing": RedisError("ERR The XGROUP subcommand requires the key to exist. Note that for CREATE ..."),
    }
    created = answered(native.create_each([*replies], "g"), lambda command: resp(replies[command[2]]))
    assert created == [True, False, None]  # in the order of the streams, whichever way they were sent
    sent = next(native.create_each([*replies], "g"))
    assert [(one.key, words(one)) for one in sent] == [
        (stream, [b"XGROUP", b"CREATE", stream, b"g", b"0-0"]) for stream in replies
    ], "one round, a command of its own for each slot"
    with pytest.raises(RedisError, match="WRONGTYPE"):
        answered(native.create_each([b"s"], "g"), lambda _: resp(RedisError("WRONGTYPE another kind of value")))


def test_removing_a_group_where_a_stream_is_missing() -> None:
    missing = RedisError("ERR The XGROUP subcommand requires the key to exist.")
    answered(native.destroy([b"s", b"u"], "g"), lambda asked: resp(missing if asked[2] == b"s" else 1))
    with pytest.raises(RedisError, match="WRONGTYPE"):
        answered(native.destroy([b"s"], "g"), lambda _: resp(RedisError("WRONGTYPE another kind of value")))


def test_counting_entries_goes_on_after_a_full_step() -> None:
    of, ranges = partition("record"), []

    def reply(command: list[bytes]) -> bytes:
        first, last, most = command[-3:]
        ranges.append((first, last, int(most)))
        return resp([2, b"0-9"] if len(ranges) == 1 else [1, b"0-12"])

    assert answered(counting.entries(of, 5, 20, 1 << 19), reply) == 3
    assert [most for *_, most in ranges] == [2, 2]
    assert ranges[1][0] == b"(0-9"
    assert answered(counting.entries(of, 20, 20, 1), reply) == 0


def test_counting_entries_gives_up() -> None:
    endless = counting.entries(partition("record"), 0, 1 << 40, 1 << 20)
    assert answered(endless, lambda _: resp([1, b"0-9"])) is None
