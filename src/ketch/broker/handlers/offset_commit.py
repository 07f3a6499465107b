"""OffsetCommit (8), versions 2 to 9: where a group goes on reading.

Members of a consumer group (KIP-848) commit in their member epoch, which takes version 9 on.

The offset is stored as `{ks}:commit:{stream}:{group}`; everything below it counts as acknowledged in the native group
of the stream (commits are cumulative). A consumer that assigned itself commits with generation -1 to a group without
members; as in Kafka such a group may have the empty name.

`retention_time_ms` (versions 2 to 4), unless it is -1, says how long the commit is kept; it takes the place of
`offsets_retention_minutes`. KIP-211 took it out of version 5.
"""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.committing import Offsets, commit
from ketch.coordinator.classic.events import Commit
from ketch.errors import KetchError

_EPOCHS_SINCE = 9


async def handle(request: Request) -> Answer:
    named = [topic for topic in request.body.topics if topic.partitions]
    return await commit(request, named, partial(_store, request))


async def _store(request: Request, commits: Offsets) -> ErrorCode:
    """Stores the commits unless the group refuses."""
    body, broker = request.body, request.broker

    def event(token: object) -> Commit:
        instance = getattr(body, "group_instance_id", None)
        epochs = request.version >= _EPOCHS_SINCE
        return Commit(token, body.member_id, instance, body.generation_id_or_member_epoch, epochs)

    try:
        error = await broker.groups.commit(body.group_id, event, request.received, commits)
    except KetchError as failure:
        return request.refuse(f"group {body.group_id}", failure)
    if error is ErrorCode.unknown_member_id and not await request.broker.groups.exists(body.group_id):
        return ErrorCode.group_id_not_found if request.version >= 9 else ErrorCode.illegal_generation
    return error
