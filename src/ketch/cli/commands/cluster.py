"""`ketch cluster`: the brokers that share one Redis, and how many partitions each leads."""

from __future__ import annotations

from collections import Counter

from ketch.cli import client
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap
from ketch.cli.output import Json, show_json, show_rows


def command(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show the brokers of a cluster: ids, addresses, and how many partitions each leads."""
    admin = client.admin(bootstrap)
    found = client.cluster(admin)
    topics = client.metadata(admin).topics.values()
    leads = Counter(partition.leader for topic in topics for partition in topic.partitions.values())
    brokers = [{"id": b.id, "host": b.host, "port": b.port, "leads": leads[b.id]} for b in found.brokers]
    if as_json:
        show_json({"cluster": found.id, "brokers": brokers})
    else:
        show_rows(("id", "host", "port", "leads"), [list(broker.values()) for broker in brokers], f"cluster {found.id}")
