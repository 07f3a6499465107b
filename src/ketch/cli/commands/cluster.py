"""`ketch cluster`: the brokers that share one Redis, and how many partitions each leads."""

from __future__ import annotations

from dataclasses import asdict, astuple

from ketch.cli import client
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap
from ketch.cli.output import Json, show_json, show_rows
from ketch.views.kafka.cluster import cluster, leaders


def command(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show the brokers of a cluster: ids, addresses, and how many partitions each leads."""
    admin = client.admin(bootstrap)
    found = cluster(admin)
    brokers = leaders(admin, found)
    if as_json:
        show_json({"cluster": found.id, "brokers": [asdict(broker) for broker in brokers]})
    else:
        show_rows(("id", "host", "port", "leads"), map(astuple, brokers), f"cluster {found.id}")
