"""PushTelemetry (72), version 0: numbers of a client, as OpenTelemetry's MetricsData (KIP-714).

They are shown as `ketch_client_metric` on the metrics page of the broker that got them (`broker.telemetry`). A push by
an older subscription gets UNKNOWN_SUBSCRIPTION_ID (117), one that comes too early THROTTLING_QUOTA_EXCEEDED (89), a
large one TELEMETRY_TOO_LARGE (118), and one that cannot be read INVALID_RECORD (87).
"""

from __future__ import annotations

import asyncio
import time

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.errors import Refused
from ketch.broker.handlers.get_telemetry_subscriptions import MAX_BYTES, client_of
from ketch.errors import CorruptRecord, KetchError, RecordTooLarge
from ketch.records import decompress
from ketch.wire.otlp import MalformedMetrics, Value, read_metrics


async def handle(request: Request) -> Answer:
    code = ErrorCode.none
    try:
        await _push(request)
    except KetchError as error:
        code = request.refuse("", error)
    return {"error_code": code}


async def _push(request: Request) -> None:
    body, telemetry, now = request.body, request.broker.telemetry, time.monotonic()
    if not body.client_instance_id:
        raise Refused(ErrorCode.invalid_request, "a push without a client instance id")
    client = client_of(request, body.client_instance_id)
    wanted = telemetry.wanted(client)
    if body.subscription_id != wanted.id:
        raise Refused(ErrorCode.unknown_subscription_id, f"the subscription is not {body.subscription_id}")
    if not (body.terminating or telemetry.may_push(client.instance, now)):
        raise Refused(ErrorCode.throttling_quota_exceeded, "the next push is not due")
    # In a thread: a kilobyte can stand for half a million metrics, of which it takes a second or two to find no value.
    values = await asyncio.to_thread(_values, bytes(body.metrics), body.compression_type)
    if body.terminating:
        telemetry.end(client.instance)
    elif wanted.metrics:
        telemetry.push(client, wanted, values, now)


def _values(data: bytes, codec: int) -> list[Value]:
    try:
        return read_metrics(bytes(decompress(codec, data, MAX_BYTES)))
    except RecordTooLarge as error:
        raise Refused(ErrorCode.telemetry_too_large, str(error)) from None
    except (CorruptRecord, MalformedMetrics) as error:
        raise Refused(ErrorCode.invalid_record, str(error)) from None
