"""How far a trim goes, from replies made here: no server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ketch.store.offsets import ZERO
from ketch.store.stream.trimming import any_between, id_after, trim_nodes
from tests.support.questions import answered
from tests.support.replies import resp
from tests.support.stored import Batch, Stored, logs, offsets, partition

layouts = st.sampled_from(["record", "batch"])


@given(layouts, st.lists(st.integers(1, 100), max_size=60), st.integers(0, 3_000))
def test_the_id_after_entries_of_so_many_bytes(layout: str, sizes: list[int], wanted: int) -> None:
    """Entries of these sizes, with ids 1-0, 2-0, ...; a reply holds few of them, as with very many entries."""
    of = partition(layout)

    def reply(words: list[bytes]) -> bytes:
        """As sizes.lua: entries from the first id on, at most three of them, until they take so many bytes."""
        *_, first, _, most = words
        at = 0 if first == b"-" else int(first.removeprefix(b"(").split(b"-")[0])
        last, total = b"", 0
        for n, size in enumerate(sizes[at : at + 3], at + 1):
            if total >= int(most):
                break
            last, total = b"%d-0" % n, total + size
        return resp([last, total])

    expected = next((n for n in range(len(sizes) + 1) if sum(sizes[:n]) >= wanted), len(sizes))
    assert answered(id_after(of, wanted), reply) == ((expected, 1) if expected else ZERO)


@given(st.lists(st.integers(1, 50_000), max_size=5))
def test_steps_until_nothing_goes(removed: list[int]) -> None:
    replies, asked = iter([*removed, 0]), []

    def reply(words: list[bytes]) -> bytes:
        asked.append(words)
        return resp(next(replies))

    of = partition("record")
    assert answered(trim_nodes(of, (7, 3)), reply) == sum(removed)
    assert asked == (len(removed) + 1) * [[b"XTRIM", of.key, b"MINID", b"~", b"7-3", b"LIMIT", b"50000"]]


@given(logs(gap=5, records=1, batches=20), st.integers(0, 60), st.none() | st.integers(0, 60))
def test_whether_there_is_an_entry(log: list[Batch], start: int, end: int | None) -> None:
    of = partition("record")
    expected = any(start <= offset < (1 << 62 if end is None else end) for offset in offsets(log))
    assert Stored(of, log).ask(any_between(of, start, end)) == expected
