"""Questions by which a partition's stream is trimmed.

Approximate trimming removes whole nodes of the stream: a record may stay a little longer, as in Kafka, where a segment
goes as a whole, and Redis is not held up.
"""

from __future__ import annotations

from ketch.redis.question import Question, ask, call
from ketch.store import scripts
from ketch.store.offsets import ZERO, EntryId
from ketch.store.stream.ranges import PartitionStream

_STEP = 50_000  # entries that one XTRIM removes: some milliseconds


def trim(stream: PartitionStream, offset: int) -> Question[int]:
    """Removes the entries whose records all lie below `offset`; how many there were."""
    removed: int = yield from call(stream.key, "XTRIM", stream.key, "MINID", "=", _entry(stream, offset))
    return removed


def trim_nodes(stream: PartitionStream, least: EntryId) -> Question[int]:
    """Removes whole nodes of entries below an id; how many entries there were.

    It takes steps, for Redis does nothing else meanwhile. Without a limit Redis would set one itself, of a hundred
    nodes (10,000 entries), and retention would not keep up.
    """
    total, below = 0, stream.numbering.format_id(*least)
    while True:
        words = ("XTRIM", stream.key, "MINID", "~", below, "LIMIT", _STEP)
        removed: int = yield from call(stream.key, *words)
        if not removed:
            return total
        total += removed


def id_after(stream: PartitionStream, size: int) -> Question[EntryId]:
    """The id after the first entries that take `size` bytes; 0-0 where there are none."""
    first, found = b"-", ZERO
    while size > 0:
        last, taken = yield from ask(scripts.sizes(stream.key, first, stream.layout.count_step, size))
        if not last:
            break
        size -= taken
        ms, seq = stream.numbering.parse_id(last)
        first, found = b"(" + last, (ms, seq + 1)
    return found


def any_between(stream: PartitionStream, start: int, end: int | None = None) -> Question[bool]:
    """Whether there is an entry from offset `start` on, up to `end` (exclusive) where that is given."""
    last = b"+" if end is None else b"(" + _entry(stream, end)
    return bool((yield from call(stream.key, "XRANGE", stream.key, _entry(stream, start), last, "COUNT", 1)))


def _entry(stream: PartitionStream, offset: int) -> bytes:
    return stream.numbering.format_id(*stream.numbering.to_id(offset))
