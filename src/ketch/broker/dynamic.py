"""Broker configs that change while brokers run: kept in Redis, and taken over by each broker with its next heartbeat.

It owns this broker's copy of them and what follows from it: `settings`, which handlers read, and the defaults of topic
configs. A broker's own value wins over that for all brokers, that over what it was started with (as in Kafka's
DynamicBrokerConfig).

A topic's hash holds the configs that it was created with, for who reads it in Redis. So where the default of a topic
config changes for all brokers, the hashes that hold the old default are given the new one first. Cut off on the way,
the same change can be asked for again and does the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ketch.configs.broker_table import BROKER_CONFIGS, BrokerConfig
from ketch.configs.settings import Settings
from ketch.configs.topic_checks import defaults, validate
from ketch.configs.topic_table import CONFIGS
from ketch.errors import InvalidConfig, UnknownTopicOrPartition
from ketch.log.log import Log
from ketch.store.cluster import configs
from ketch.store.cluster.configs import ALL_BROKERS
from ketch.store.topics.handwritten import complain
from ketch.store.topics.topic import Topic

log = logging.getLogger(__name__)

# DescribeConfigsResponse.ConfigSource
OF_BROKER, OF_ALL_BROKERS, STATIC, DEFAULT = 2, 3, 4, 5
_AT_ONCE = 200  # topics that are given a new default in one go

Level = tuple[str | None, int]  # a value and its source


class DynamicConfigs:
    """The broker's configs as they are now.

    Args:
        settings: what the broker was started with.
        changed: takes the settings when they have changed.
    """

    def __init__(self, settings: Settings, log_: Log, changed: Callable[[Settings], None]) -> None:
        self._static, self._log, self._changed = settings, log_, changed
        self._node = str(settings.node_id)
        self._stored: dict[str, dict[str, str]] = {}

    async def refresh(self) -> None:
        """Reads what is stored, and applies it where it has changed."""
        found = await self._log.driver.ask(configs.read(self._log.keys))
        stored = {node: _readable(found.get(node, {})) for node in (ALL_BROKERS, self._node)}
        if stored != self._stored and (self._stored or any(stored.values())):
            self._stored = stored
            self._apply()
        self._stored = stored

    def stored(self, node: str) -> Mapping[str, str]:
        """What was changed for a broker, this one, or for `ALL_BROKERS`."""
        return self._stored.get(node, {})

    def levels(self, name: str) -> list[Level]:
        """A config's values and where they are from; the first one is in force."""
        config = BROKER_CONFIGS[name]
        found: list[Level] = []
        for node, source in ((self._node, OF_BROKER), (ALL_BROKERS, OF_ALL_BROKERS)):
            if name in self.stored(node):
                found.append((self.stored(node)[name], source))
        static, default = config.static(self._static), config.default()
        if static != default:
            found.append((static, STATIC))
        return [*found, (default, DEFAULT)]

    async def alter(self, node: str, values: Mapping[str, str | None]) -> None:
        """Changes configs of this broker or of `ALL_BROKERS`; None takes a change back.

        Raises:
            InvalidConfig: the values do not go together.
            StorageUnavailable: Redis is gone.
        """
        self.check(node, values)
        if node == ALL_BROKERS:
            await self._carry_over(values)
        await self._log.driver.ask(configs.change(self._log.keys, node, values))
        await self.refresh()

    def check(self, node: str, values: Mapping[str, str | None]) -> None:
        """Raises InvalidConfig where the defaults of topics would contradict each other."""
        after = {**self.stored(node), **values}
        wanted = {config.topic: value for name, value in after.items() if value and (config := _topical(name))}
        validate(wanted, self._log.defaults)

    def _apply(self) -> None:
        values = {**self.stored(ALL_BROKERS), **self.stored(self._node)}
        changes: dict[str, Any] = {}
        topics = defaults(self._static)
        for name, value in values.items():
            config = BROKER_CONFIGS[name]
            if config.key.setting:
                changes[config.key.setting] = int(value) if config.key.type in ("int", "long") else value
            if config.topic:
                topics[config.topic] = value
        self._log.configure(
            topics, int(changes.get("producer_id_expiration_ms", self._static.producer_id_expiration_ms))
        )
        self._changed(self._static.model_copy(update=changes))
        shown = ", ".join(f"{name}={value}" for name, value in sorted(values.items()))
        log.info("broker configs changed at run time: %s", shown or "none")

    async def _carry_over(self, values: Mapping[str, str | None]) -> None:
        """Gives topics whose hash holds the old default of all brokers the new one."""
        before = {**defaults(self._static), **_by_topic(self.stored(ALL_BROKERS))}
        kept = {name: value for name, value in self.stored(ALL_BROKERS).items() if name not in values}
        given = {name: value for name, value in values.items() if value is not None}
        after = {**defaults(self._static), **_by_topic({**kept, **given})}
        # What has no effect is in no hash that did not ask for it.
        moved = {name: after[name] for name in after if after[name] != before[name] and not CONFIGS[name].idle}
        if not moved:
            return
        topics = await self._log.topics.all()
        for start in range(0, len(topics), _AT_ONCE):
            changes = [(topic, _moved(topic.configs, before, moved)) for topic in topics[start : start + _AT_ONCE]]
            await asyncio.gather(*(self._move(topic, change) for topic, change in changes if change))

    async def _move(self, topic: Topic, change: Mapping[str, str]) -> None:
        with contextlib.suppress(UnknownTopicOrPartition):  # it was deleted meanwhile
            await self._log.topics.alter(topic, change)


def _moved(configs: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in after.items() if configs[name] == before[name]}


def _topical(name: str) -> BrokerConfig | None:
    config = BROKER_CONFIGS[name]
    return config if config.topic else None


def _by_topic(values: Mapping[str, str]) -> dict[str, str]:
    return {config.topic: value for name, value in values.items() if (config := _topical(name))}


def _readable(values: Mapping[str, str]) -> dict[str, str]:
    """Those that can be used: they may have been written by hand."""
    found = {}
    for name, value in values.items():
        try:
            found[name] = check_value(name, value)
        except InvalidConfig as error:
            complain(f"broker configs: {error}; it is passed over")
    return found


def check_value(name: str, value: str) -> str:
    """A value for a config that can change at run time, in its canonical form; InvalidConfig for any other."""
    config = BROKER_CONFIGS.get(name)
    if config is None or not config.dynamic:
        raise InvalidConfig(f"Cannot update these configs dynamically: Set({name})")
    return config.key.check(value.strip())
