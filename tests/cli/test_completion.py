"""What the shell proposes: commands, options, and names that the broker knows. It never prints an error."""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.cli import in_process
from tests.support.ketch import KetchServer


def proposed(line: str, bootstrap: str = "127.0.0.1:1") -> list[str]:
    """What bash gets for a line whose last word is being typed."""
    words = line.split(" ")
    typed = {"_KETCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = in_process([], b"", {"KETCH_BOOTSTRAP_SERVER": bootstrap, **typed})
    assert done.stderr == b""
    return done.stdout.decode().split()


def test_names_of_the_broker(broker: KetchServer, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    group = f"g-{topic}"
    offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])
    admin.alter_consumer_group_offsets([offsets])[group].result()
    begun = topic[:-1]
    assert topic in proposed(f"ketch topics describe {begun}", broker.bootstrap)
    assert topic in proposed(f"ketch consume --bootstrap-server {broker.bootstrap} {begun}")
    assert group in proposed(f"ketch groups describe g-{begun}", broker.bootstrap)
    assert group in proposed(f"ketch consume {topic} --group g-{begun}", broker.bootstrap)
    assert proposed("ketch topics describe no-such-", broker.bootstrap) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ketch stat", ["status"]),
        ("ketch topics cr", ["create"]),
        ("ketch serve --fs", ["--fsync"]),
        ("ketch topics alter t --config retention.b", ["retention.bytes="]),
        ("ketch topics alter t --delete-config retention.b", ["retention.bytes"]),
        ("ketch topics describe o", []),
        ("ketch groups describe --bootstrap-server nonsense: o", []),
    ],
)
def test_without_a_broker(line: str, words: list[str]) -> None:
    assert proposed(line) == words
