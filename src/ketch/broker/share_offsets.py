"""What AlterShareGroupOffsets and DeleteShareGroupOffsets have in common: finding topics, and asking the group.

The group's machine is asked first: it refuses unless it is a share group without members, and it is stored with the
topics on which it stands from now on. Only then do the handlers have each partition's `Share` change what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable

from kio.schema.errors import ErrorCode

from ketch.broker.api import Request
from ketch.broker.coordination.machines import Token
from ketch.broker.topics import denied
from ketch.coordinator.consumer.events import BeatResult
from ketch.coordinator.share.events import ShareForget, ShareMove
from ketch.security.acls import ResourceType
from ketch.store.topics.topic import Topic

UNKNOWN_TOPIC = "This server does not host this topic-partition."
_NO_ID = "The group id is invalid."


async def find(request: Request, name: str) -> tuple[Topic | None, ErrorCode]:
    """The topic; where the client may not read it, or there is none, the code for it."""
    if code := request.denial(ResourceType.TOPIC, name):
        return None, request.refuse(name, denied(code), code)
    topic = await request.broker.log.topics.get(name)
    return topic, ErrorCode.none if topic is not None else ErrorCode.unknown_topic_or_partition


async def judge(
    request: Request, group: str, make: Callable[[Token], ShareMove | ShareForget]
) -> tuple[ErrorCode, str | None]:
    """Asks the group whether its offsets may be changed: error code and message of a whole answer, or no error.

    Args:
        make: the event from its token.

    Raises:
        KetchError: as `Groups.submit`.
    """
    if not group:
        return ErrorCode.invalid_group_id, _NO_ID
    result: BeatResult = await request.broker.groups.submit(group, make)
    return result.error, result.message
