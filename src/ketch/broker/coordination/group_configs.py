"""Configs of single groups (ConfigResource GROUP): kept in Redis, and taken over by each broker a heartbeat later.

It owns this broker's copy of them, their table, and what a consumer group goes by (`consumer`). A group's own value
wins over the settings `group_consumer_*`. A group need not exist to have configs, as in Kafka (GroupConfigManager).
"""

from __future__ import annotations

from collections.abc import Mapping

from ketch.configs.key import ConfigKey
from ketch.configs.settings import Settings
from ketch.coordinator.consumer.member import ConsumerConfig
from ketch.errors import InvalidConfig
from ketch.log.log import Log
from ketch.store.cluster import resource_configs
from ketch.store.topics.handwritten import complain

_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

# GroupConfig, as far as groups here go by it
CONFIGS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            _SESSION,
            "int",
            "After so long without a heartbeat a member is gone, ms.",
            setting="group_consumer_session_timeout_ms",
            low=1,
        ),
        ConfigKey(
            _HEARTBEAT,
            "int",
            "How often members send heartbeats, ms.",
            setting="group_consumer_heartbeat_interval_ms",
            low=1,
        ),
    )
}


class GroupConfigs:
    """The configs of groups as they are now."""

    def __init__(self, settings: Settings, log_: Log) -> None:
        self._settings, self._log = settings, log_
        self.stored: dict[str, dict[str, str]] = {}  # by group, what differs from the defaults
        self._default = self._consumer({})
        self._consumers: dict[str, ConsumerConfig] = {}

    async def refresh(self) -> None:
        """Reads what is stored; raises StorageUnavailable."""
        found = await self._log.driver.ask(resource_configs.read(self._log.keys.group_configs))
        self.stored = {name: configs for name, each in found.items() if (configs := self._readable(name, each))}
        self._consumers = {name: self._consumer(configs) for name, configs in self.stored.items()}

    async def alter(self, group: str, configs: Mapping[str, str]) -> None:
        """Replaces the configs of a group; without any it goes by the settings."""
        await self._log.driver.ask(resource_configs.write(self._log.keys.group_configs, group, configs))
        await self.refresh()

    def consumer(self, group: str) -> ConsumerConfig:
        """What a consumer group goes by."""
        return self._consumers.get(group, self._default)

    def default(self, config: str) -> str:
        """The value of a config in a group that has none of its own."""
        return CONFIGS[config].default(self._settings)

    def check(self, configs: Mapping[str, str]) -> dict[str, str]:
        """The values in canonical form (GroupConfigManager.validate).

        Raises:
            InvalidConfig: one cannot be, or they contradict each other.
        """
        for name in configs:
            if name not in CONFIGS:
                raise InvalidConfig(f"Unknown group config name: {name}")
        checked = {name: CONFIGS[name].check(value) for name, value in configs.items()}
        for name in (name for name in (_HEARTBEAT, _SESSION) if name in checked):
            self._check_bounds(name, int(checked[name]))
        if int(checked.get(_HEARTBEAT, 0)) >= int(checked.get(_SESSION, self.default(_SESSION))):
            raise InvalidConfig(f"{_SESSION} must be greater than {_HEARTBEAT}")
        return checked

    def _check_bounds(self, name: str, value: int) -> None:
        kind, _, what = name.partition(".")
        setting = what.replace(".", "_")
        if value < getattr(self._settings, f"group_{kind}_min_{setting}"):
            raise InvalidConfig(f"{name} must be greater than or equal to group.{kind}.min.{what}")
        if value > getattr(self._settings, f"group_{kind}_max_{setting}"):
            raise InvalidConfig(f"{name} must be less than or equal to group.{kind}.max.{what}")

    def _readable(self, group: str, configs: Mapping[str, str]) -> dict[str, str]:
        """Those that can be used: they may have been written by hand."""
        try:
            return self.check(configs)
        except InvalidConfig as error:
            complain(f"configs of group {group}: {error}; they are passed over")
            return {}

    def _consumer(self, configs: Mapping[str, str]) -> ConsumerConfig:
        settings = self._settings
        return ConsumerConfig(
            int(configs.get(_SESSION, settings.group_consumer_session_timeout_ms)) / 1000,
            int(configs.get(_HEARTBEAT, settings.group_consumer_heartbeat_interval_ms)) / 1000,
            settings.group_consumer_max_size,
            tuple(settings.group_consumer_assignors.split(",")),
        )
