"""Makes one topic that a command needs, and waits until it can be used."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ketch.views.kafka import topics
from ketch.views.kafka.answers import TIMEOUT, ClientError, result

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_LOOK = 0.1  # s between two looks at the new topic


def create(admin: AdminClient, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Creates a topic; `await_made` is to follow.

    Raises:
        ClientError: the broker refused it, or did not answer.
    """
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    wanted = [NewTopic(name, partitions, -1, config=dict(configs))]
    made = admin.create_topics(wanted, operation_timeout=TIMEOUT, request_timeout=TIMEOUT)
    result(made[name], f"Topic {name} was not created")


def await_made(admin: AdminClient, name: str) -> None:
    """Waits until a topic that was just made has leaders: a broker may learn of its partitions a moment later.

    Raises:
        ClientError: that takes longer than an answer may.
    """
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            (found,) = topics.describe(admin, [name])
            topics.offsets(admin, name, found.places, "latest")
            return
        except ClientError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK)
