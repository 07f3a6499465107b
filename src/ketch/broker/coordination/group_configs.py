"""Configs of single groups (ConfigResource GROUP): kept in Redis, and taken over by each broker a heartbeat later.

It owns this broker's copy of them, their table, and what a consumer group and a share group go by (`consumer`,
`share`). A group's own value wins over the settings `group_consumer_*` and `group_share_*`. A group need not exist to
have configs, as in Kafka (GroupConfigManager); a group of one kind may have configs of the other.
"""

from __future__ import annotations

from collections.abc import Mapping

from ketch.configs.key import ConfigKey
from ketch.configs.settings import Settings
from ketch.coordinator.consumer.member import ConsumerConfig
from ketch.coordinator.share.config import Isolation, ResetStrategy, ShareConfig
from ketch.errors import InvalidConfig
from ketch.log.log import Log
from ketch.store.cluster import resource_configs
from ketch.store.topics.handwritten import complain

_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
_SHARE_SESSION, _SHARE_HEARTBEAT = "share.session.timeout.ms", "share.heartbeat.interval.ms"
_LOCK, _RESET, _ISOLATION = "share.record.lock.duration.ms", "share.auto.offset.reset", "share.isolation.level"
_GONE = "After so long without a heartbeat a member is gone, ms."
_OFTEN = "How often members send heartbeats, ms."


def _time(name: str, documentation: str, low: int = 1) -> ConfigKey:
    return ConfigKey(name, "int", documentation, setting=_setting(name), low=low)


def _setting(name: str, bound: str = "") -> str:
    """The setting that is its default, or the bound `min` or `max` of what a group may have."""
    kind, _, what = name.partition(".")
    return "_".join(("group", kind, *filter(None, (bound,)), what.replace(".", "_")))


# GroupConfig, as far as groups here go by it
CONFIGS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        _time(_SESSION, _GONE),
        _time(_HEARTBEAT, _OFTEN),
        _time(_SHARE_SESSION, _GONE),
        _time(_SHARE_HEARTBEAT, _OFTEN),
        _time(_LOCK, "How long a record is acquired, ms.", low=1000),
        ConfigKey(_RESET, "string", "Where reading begins.", ShareConfig().reset.to, parse=ResetStrategy.parse),
        ConfigKey(
            _ISOLATION, "string", "What is read of transactions.", ShareConfig().isolation, parse=Isolation.parse
        ),
    )
}
_BOUNDED = (_HEARTBEAT, _SESSION, _SHARE_HEARTBEAT, _SHARE_SESSION, _LOCK)  # in the order in which Kafka checks them


class GroupConfigs:
    """The configs of groups as they are now."""

    def __init__(self, settings: Settings, log_: Log) -> None:
        self._settings, self._log = settings, log_
        self.stored: dict[str, dict[str, str]] = {}  # by group, what differs from the defaults
        self._default = self._consumer({})
        self._default_share = self._share({})
        self._consumers: dict[str, ConsumerConfig] = {}
        self._shares: dict[str, ShareConfig] = {}

    async def refresh(self) -> None:
        """Reads what is stored; raises StorageUnavailable."""
        found = await self._log.driver.ask(resource_configs.read(self._log.keys.group_configs))
        self.stored = {name: configs for name, each in found.items() if (configs := self._readable(name, each))}
        self._consumers = {name: self._consumer(configs) for name, configs in self.stored.items()}
        self._shares = {name: self._share(configs) for name, configs in self.stored.items()}

    async def alter(self, group: str, configs: Mapping[str, str]) -> None:
        """Replaces the configs of a group; without any it goes by the settings."""
        await self._log.driver.ask(resource_configs.write(self._log.keys.group_configs, group, configs))
        await self.refresh()

    def consumer(self, group: str) -> ConsumerConfig:
        """What a consumer group goes by."""
        return self._consumers.get(group, self._default)

    def share(self, group: str) -> ShareConfig:
        """What a share group goes by."""
        return self._shares.get(group, self._default_share)

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
        for name in (name for name in _BOUNDED if name in checked):
            self._check_bounds(name, int(checked[name]))
        for heartbeat, session in ((_HEARTBEAT, _SESSION), (_SHARE_HEARTBEAT, _SHARE_SESSION)):
            if int(checked.get(heartbeat, 0)) >= int(checked.get(session, self.default(session))):
                raise InvalidConfig(f"{session} must be greater than {heartbeat}")
        return checked

    def _check_bounds(self, name: str, value: int) -> None:
        kind, _, what = name.partition(".")
        if value < getattr(self._settings, _setting(name, "min")):
            raise InvalidConfig(f"{name} must be greater than or equal to group.{kind}.min.{what}")
        if value > getattr(self._settings, _setting(name, "max")):
            raise InvalidConfig(f"{name} must be less than or equal to group.{kind}.max.{what}")

    def _readable(self, group: str, configs: Mapping[str, str]) -> dict[str, str]:
        """Those that can be used: they may have been written by hand."""
        try:
            return self.check(configs)
        except InvalidConfig as error:
            complain(f"configs of group {group}: {error}; they are passed over")
            return {}

    def _consumer(self, configs: Mapping[str, str]) -> ConsumerConfig:
        return ConsumerConfig(
            self._seconds(configs, _SESSION),
            self._seconds(configs, _HEARTBEAT),
            self._settings.group_consumer_max_size,
            tuple(self._settings.group_consumer_assignors.split(",")),
        )

    def _share(self, configs: Mapping[str, str]) -> ShareConfig:
        return ShareConfig(
            self._seconds(configs, _SHARE_SESSION),
            self._seconds(configs, _SHARE_HEARTBEAT),
            self._settings.group_share_max_size,
            self._seconds(configs, _LOCK),
            self._settings.group_share_delivery_count_limit,
            self._settings.group_share_partition_max_record_locks,
            ResetStrategy.parse(configs.get(_RESET, self.default(_RESET))),
            Isolation.parse(configs.get(_ISOLATION, self.default(_ISOLATION))),
        )

    def _seconds(self, configs: Mapping[str, str], name: str) -> float:
        return int(configs.get(name, self.default(name))) / 1000
