"""Every key Ketch keeps in Redis. The names are a contract with users of redis-cli (docs/redis-layout.md)."""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""A topic's name and the number of one of its partitions, as Kafka's clients call it."""


class Keyspace:
    """Key names under one prefix, as bytes, for that is how they go onto the wire.

    Args:
        name: the prefix, `korvet` by default; `ketch.configs.settings` refuses braces in it, for they would move every
        hash slot.
    """

    __slots__ = (
        "name", "next_producer_id", "topic_ids", "topics", "cluster_id", "groups", "brokers", "group_changes",
        "transactional_ids", "transaction_changes", "broker_configs", "client_metrics", "group_configs", "quotas",
        "users", "acls", "glob",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.glob = _glob(name.encode()).decode()  # the prefix as a part of a glob pattern
        self.topics = f"{name}:topics".encode()
        self.topic_ids = f"{name}:topic-ids".encode()
        self.groups = f"{name}:groups".encode()
        self.group_changes = f"{name}:group-changes".encode()
        self.transactional_ids = f"{name}:transactional-ids".encode()
        self.transaction_changes = f"{name}:transaction-changes".encode()
        self.brokers = f"{name}:brokers".encode()
        self.broker_configs = f"{name}:broker-configs".encode()
        self.client_metrics = f"{name}:client-metrics".encode()
        self.acls = f"{name}:acls".encode()
        self.group_configs = f"{name}:group-configs".encode()
        self.quotas = f"{name}:quotas".encode()
        self.users = f"{name}:users".encode()
        self.cluster_id = f"{name}:cluster-id".encode()
        self.next_producer_id = f"{name}:next-producer-id".encode()

    def topic(self, topic: str) -> bytes:
        """Hash: one topic's id, partition count and configuration."""
        return f"{self.name}:topic:{topic}".encode()

    def stream(self, topic: str, partition: int) -> bytes:
        """Stream: the log of one partition."""
        return f"{self.name}:stream:{topic}:{partition}".encode()

    def archive(self, topic: str) -> bytes:
        """Hash: what of a topic has been archived, and where."""
        return f"{self.name}:archive:{topic}".encode()

    def legacy_brokers(self, topic: str) -> bytes:
        """Hash: through which broker clients of Kafka 0.7 reach each partition, see `store.cluster.legacy`."""
        return f"{self.name}:legacy07-brokers:{topic}".encode()

    def commit(self, stream: bytes, group: str) -> bytes:
        """String: the committed offset of one group on one stream."""
        return self.name.encode() + b":commit:" + stream + b":" + group.encode()

    def commit_term(self, commit: bytes) -> bytes:
        """String: the term in which this commit key was written, in its slot (see `store.coordination.terms`)."""
        # A group's name may bring a hash tag of its own, which then decides the slot of both keys.
        # One slot cannot be had for a name with a `}` and no tag; on a cluster such a group cannot commit.
        return self._with(b"commit-term", commit)

    def group(self, group: str) -> bytes:
        """Hash: a group's membership."""
        return f"{self.name}:group:{group}".encode()

    def offsets(self, group: str) -> bytes:
        """Hash: what a group's commits carry beside the offset."""
        return f"{self.name}:offsets:{group}".encode()

    def commits(self, topic: str) -> bytes:
        """Glob pattern of the committed offsets of every group on one topic."""
        return _glob(f"{self.name}:commit:{self.name}:stream:{topic}:".encode()) + b"*"

    def commit_prefix(self) -> bytes:
        """What every commit key begins with; `topic:partition:group` follows."""
        return f"{self.name}:commit:{self.name}:stream:".encode()

    def every_commit(self) -> bytes:
        """Glob pattern of all committed offsets."""
        return _glob(self.commit_prefix()) + b"*"

    def producers(self, stream: bytes) -> bytes:
        """Hash: idempotent producer id -> state, in the stream's own slot."""
        return self._beside(b"producers", stream)

    def compaction(self, stream: bytes) -> bytes:
        """Hash: how far the partition was compacted, and which broker compacts it, in the stream's own slot."""
        return self._beside(b"compaction", stream)

    def compacting(self, stream: bytes, term: int) -> bytes:
        """Stream: what a compaction that goes on has kept so far, in the stream's own slot."""
        return self._beside(b"compacting", stream) + b":%d" % term

    def transactions(self, stream: bytes) -> bytes:
        """Hash: the transactions that are open on a partition, by producer id; in the stream's own slot."""
        return self._beside(b"transactions", stream)

    def aborted(self, stream: bytes) -> bytes:
        """Stream: the transactions that were aborted on a partition, by their marker's id; in the stream's slot."""
        return self._beside(b"aborted", stream)

    def shares(self, stream: bytes) -> bytes:
        """Hash: what share groups have in flight on a partition in the batch layout; in the stream's slot."""
        return self._beside(b"shares", stream)

    def transaction(self, transactional_id: str) -> bytes:
        """Hash: what is coordinated of a transactional id."""
        return f"{self.name}:transaction:{transactional_id}".encode()

    def pending_offsets(self, group: str) -> bytes:
        """Hash: the offsets that open transactions commit for a group."""
        return f"{self.name}:pending-offsets:{group}".encode()

    def fence(self, stream: bytes, session: bytes) -> bytes:
        """String: a broker session whose pipelined appends were refused and must stay so until it has seen it."""
        return self._beside(b"fence", stream) + b":" + session

    def copies(self, key: bytes) -> bytes:
        """String, for a minute: written so that WAIT vouches for what was written before; in the key's slot."""
        return self._with(b"copies", key)

    def positions(self, stream: bytes) -> bytes:
        """Stream: the byte positions of Kafka 0.7's clients, in the log stream's slot; see `store.stream.positions`."""
        return self._beside(b"legacy07", stream)

    def _with(self, kind: bytes, key: bytes) -> bytes:
        """A key in the slot of another one, which may have a hash tag of its own."""
        before, _, tag = key.partition(b"{")
        tagged = before != key and tag.find(b"}") > 0
        return self.name.encode() + b":" + kind + b":" + key if tagged else self._beside(kind, key)

    def _beside(self, kind: bytes, stream: bytes) -> bytes:
        # The braces make Redis Cluster hash this key to the slot of the un-tagged stream key, so MULTI may span both.
        return self.name.encode() + b":" + kind + b":{" + stream + b"}"


def _glob(key: bytes) -> bytes:
    return b"".join(b"\\" + bytes([c]) if c in b"*?[]\\^-" else bytes([c]) for c in key)
