"""Which names a topic can have: Kafka's rules (`org.apache.kafka.common.internals.Topic`) and their words."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Request
from ketch.broker.errors import Refused
from ketch.store.topics.topic import legal_name


def check_name(name: str) -> None:
    """Raises Refused for a name that no topic can have."""
    if not legal_name(name):
        raise Refused(ErrorCode.invalid_topic_exception, _why_illegal(name))


def _why_illegal(name: str) -> str:
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > 249:
        reason = f"the length of '{name}' is longer than the max allowed length 249"
    else:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return f"Topic name is invalid: {reason}"


async def check_collision(request: Request, name: str) -> None:
    """Raises Refused for a name that is a topic's but for `.` and `_` (Topic.hasCollision)."""
    if "." not in name and "_" not in name:
        return
    alike = name.replace(".", "_")
    for other in await request.broker.log.topics.names():
        if other != name and other.replace(".", "_") == alike:
            raise Refused(ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {other}")
