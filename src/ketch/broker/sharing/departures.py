"""What members of share groups hold is given back when their session is over, or their connection has closed.

It owns no session: `broker.sharing.sessions` says which one is over, and which partitions it has touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ketch.broker.coordination.group_configs import GroupConfigs
from ketch.broker.sharing.sessions import PartitionKey, ShareSession
from ketch.errors import KetchError, UnknownTopicId, UnknownTopicOrPartition
from ketch.log.log import Log

log = logging.getLogger(__name__)


class Departures:
    """Gives back what members held whose sessions are over.

    Args:
        background: keeps a task alive.
    """

    def __init__(self, log_: Log, configs: GroupConfigs, background: Callable[[asyncio.Future[Any]], None]) -> None:
        self._log, self._configs, self._background = log_, configs, background

    def lost(self, session: ShareSession) -> None:
        """The session's connection has closed."""
        if session.touched:
            self._background(asyncio.get_running_loop().create_task(self.give_back(session)))

    async def give_back(self, session: ShareSession) -> None:
        """Gives back what the member of a session that is over holds.

        What cannot be given back now is given up when its lock expires.
        """
        for key in session.touched:
            try:
                await self._leave(session, key)
            except (UnknownTopicId, UnknownTopicOrPartition):
                continue  # what it held is gone with the topic
            except KetchError as error:
                log.info("share group %s: member %s is gone: %s", *session.key, error)

    async def _leave(self, session: ShareSession, key: PartitionKey) -> None:
        group, member = session.key
        partition = self._log.partition(await self._log.topic_by_id(key[0]), key[1])
        await partition.shares.of(group).leave(member, self._configs.share(group))
