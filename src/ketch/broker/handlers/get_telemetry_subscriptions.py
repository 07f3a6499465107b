"""GetTelemetrySubscriptions (71), version 0: which metrics a client is to push, and how often (KIP-714).

They are those of the subscriptions (configs of the resource type CLIENT_METRICS, 16) that fit the client. Without one
it is asked for none, and comes again in five minutes.
"""

from __future__ import annotations

from uuid import UUID

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.services import Configured
from ketch.broker.telemetry import Client, new_instance
from ketch.records import Codec

MAX_BYTES = 1 << 20  # of a push, decompressed too: Kafka's telemetry.max.bytes
_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)  # in Kafka's order


async def handle(request: Request) -> Answer:
    client = client_of(request, request.body.client_instance_id or new_instance())
    wanted = request.broker.telemetry.wanted(client)
    return {
        "error_code": ErrorCode.none,
        "client_instance_id": client.instance,
        "subscription_id": wanted.id,
        "accepted_compression_types": _CODECS,
        "push_interval": wanted.interval_ms,
        "telemetry_max_bytes": MAX_BYTES,
        "delta_temporality": False,
        "requested_metrics": wanted.metrics,
    }


def subscribed(broker: Configured) -> bool:
    """Whether any subscription is known here."""
    return bool(broker.telemetry.subscriptions)


def client_of(request: Request, instance: UUID) -> Client:
    """Who sends a request, as the selectors of a subscription name it."""
    name, version = request.reader.software
    facts = {
        "client_id": request.header.client_id or "",
        "client_instance_id": str(instance),
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": request.caller.address,
        "client_source_port": request.client.rpartition(":")[2],
    }
    return Client(instance, facts)
