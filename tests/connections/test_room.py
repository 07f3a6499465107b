"""How much a fetch may give: the less, the more responses are made or not taken."""

from __future__ import annotations

from ketch.connections.room import ResponseRoom

MOST, LEAST = 50 << 20, 64 << 10


def test_a_fetch_may_have_what_the_setting_says() -> None:
    assert ResponseRoom().of_fetch(MOST) == MOST


def test_what_lies_here_leaves_less_but_never_nothing() -> None:
    room = ResponseRoom()
    given = []
    for _ in range(40):
        given.append(room.of_fetch(MOST))
        room.count(given[-1])
    assert given == sorted(given, reverse=True)
    assert given[-1] == LEAST
    room.count(-sum(given))
    assert room.of_fetch(MOST) == MOST
