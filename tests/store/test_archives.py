"""The hash of an archive, from replies made here: no server."""

from __future__ import annotations

import base64
import uuid

import pytest

from ketch.store.keys import Keyspace
from ketch.store.topics import archives
from ketch.store.topics.archives import Announcement, ArchivedRange
from tests.support.questions import answered
from tests.support.replies import resp

KEYS, ID = Keyspace("k"), str(uuid.UUID(int=7))
FIELDS = {
    "topic-id": ID, "table": "ketch.t", "metadata": "file:///m", "manifests": "file:///l", "updated": "9",
    "records": "30", "start:0": "5", "through:0": "20", "start:11": "0", "through:11": "10", "deleted:0": "12",
}  # fmt: skip


def read(**changed: str | None) -> Announcement | None:
    fields = {name: value for name, value in (FIELDS | changed).items() if value is not None}
    reply = resp([word.encode() for pair in fields.items() for word in pair])

    def replied(words: list[bytes]) -> bytes:
        assert words == [b"HGETALL", b"k:archive:t"]
        return reply

    return answered(archives.read(KEYS, "t", ID), replied)


def test_what_is_announced() -> None:
    held = {0: ArchivedRange(12, 20), 11: ArchivedRange(0, 10)}
    assert read() == Announcement("ketch.t", "file:///m", "file:///l", 9, 30, held, {0: 12})


def test_nothing_is_announced() -> None:
    assert read(metadata=None) is None
    assert read(**{"topic-id": str(uuid.UUID(int=8))}) is None


def test_a_number_that_cannot_be_read_archives_nothing(caplog: pytest.LogCaptureFixture) -> None:
    found = read(**{"through:0": "many", "through:x": "5"})
    assert found is not None
    assert found.partitions == {0: ArchivedRange(12, 0), 11: ArchivedRange(0, 10)}
    assert "archive of t: through:0" in caplog.text


def announced(id_: bytes | None) -> list[list[bytes]]:
    """The commands by which something is announced, where the topic's hash has this id."""
    asked: list[list[bytes]] = []

    def reply(words: list[bytes]) -> bytes:
        asked.append(words)
        return resp(1 if words[0] == b"EVAL" else id_)

    what = Announcement("ketch.t", "file:///m", "", 9, 30, {2: ArchivedRange(1, 4)})
    done = answered(archives.announce(KEYS, "t", ID, what), reply)
    assert done == (len(asked) == 2)
    return asked


def test_an_announcement() -> None:
    for known in (ID, ID.upper(), base64.urlsafe_b64encode(uuid.UUID(ID).bytes).decode().rstrip("=")):
        asked, told = announced(known.encode())
        assert asked == [b"HGET", b"k:topic:t", b"id"]
        assert told[2:6] == [b"1", b"k:archive:t", b"9", ID.encode()]
        fields = dict(zip(told[6::2], told[7::2], strict=True))
        assert fields[b"start:2"] + fields[b"through:2"] == b"14"
        assert fields[b"manifests"] == b""


@pytest.mark.parametrize("known", [None, b"", b"x", str(uuid.UUID(int=8)).encode()])
def test_a_topic_that_is_gone_is_told_of_nothing(known: bytes | None) -> None:
    assert len(announced(known)) == 1
