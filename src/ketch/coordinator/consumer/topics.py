"""The topics that members of a consumer group can subscribe to, as they were at one moment.

A group looks at its topics again when an event brings newer ones than it has seen. So the caller makes new ones only
where a topic has come, gone or grown. Pure: the caller reads Redis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ketch.coordinator.patterns import matcher, regex_error

Partition = tuple[str, int]  # topic id (text form of the UUID) and index
Partitions = frozenset[Partition]
NO_PARTITIONS: Partitions = frozenset()

_MATCHES_MAX = 1000  # regular expressions whose matches are kept; clients may send ever new ones


class TopicInfo(NamedTuple):
    """One topic: its id in the text form of a UUID, and how many partitions it has."""

    id: str
    partitions: int


def by_topic(partitions: Partitions) -> dict[str, list[int]]:
    """Partitions as lists of indexes by topic id, both in order."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def of_topics(topics: Mapping[str, list[int]]) -> Partitions:
    """What `by_topic` was made of."""
    return frozenset((topic, index) for topic, indexes in topics.items() for index in indexes)


def named(partitions: Partitions, topics: Mapping[str, TopicInfo]) -> dict[tuple[str, str], list[int]]:
    """Partitions by their topics' ids and names; without those of topics that are gone.

    Args:
        topics: by name.
    """
    names = {info.id: name for name, info in topics.items()}
    return {(topic, names[topic]): indexes for topic, indexes in by_topic(partitions).items() if topic in names}


class Topics:
    """All topics by name.

    Args:
        serial: the higher, the newer.
    """

    def __init__(self, by_name: Mapping[str, TopicInfo], serial: int = 0) -> None:
        self.by_name, self.serial = by_name, serial
        self._matches: dict[str, frozenset[str]] = {}

    def matching(self, regex: str) -> frozenset[str]:
        """The names that the regular expression matches as a whole; none for one that is empty or no RE2."""
        found = self._matches.get(regex)
        if found is None:
            if len(self._matches) >= _MATCHES_MAX:
                self._matches.clear()
            found = self._matches[regex] = self._match(regex)
        return found

    def _match(self, regex: str) -> frozenset[str]:
        if not regex or regex_error(regex) is not None:
            return frozenset()
        return frozenset(filter(matcher(regex), self.by_name))
