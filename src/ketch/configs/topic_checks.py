"""What is done with topic configs: a client's are checked, and the broker's settings give the defaults.

Which configs there are is in `configs.topic_table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ketch.configs.key import LONG_MAX
from ketch.configs.topic_table import AS_TOTAL, CONFIGS
from ketch.errors import InvalidConfig

if TYPE_CHECKING:
    from ketch.configs.settings import Settings


def validate(configs: Mapping[str, str | None], existing: Mapping[str, str] | None = None) -> dict[str, str]:
    """Configs as a client gave them, checked and canonical.

    Args:
        existing: what the topic has already; they are held against it, too.

    Raises:
        InvalidConfig: an unknown name, a null, or a value out of range.
    """
    checked = {}
    for name, value in configs.items():
        if name not in CONFIGS:
            raise InvalidConfig(f"Unknown topic config name: {name}")
        if value is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {name}")
        checked[name] = CONFIGS[name].check(value.strip())
    for unit in ("ms", "bytes"):
        pair = f"local.retention.{unit}", f"retention.{unit}"
        if not checked.keys().isdisjoint(pair):
            _check_local({**(existing or {}), **checked}, *pair)
    _check_lags({**(existing or {}), **checked})
    return checked


def _check_lags(checked: Mapping[str, str]) -> None:
    """LogConfig.validateValues."""
    least, most = (f"{which}.compaction.lag.ms" for which in ("min", "max"))
    low, high = int(checked.get(least, 0)), int(checked.get(most, LONG_MAX))
    if low > high:
        raise InvalidConfig(f"conflict topic config setting {least} ({low}) > {most} ({high})")


def _check_local(checked: Mapping[str, str], name: str, total: str) -> None:
    """LogConfig.validateRemoteStorageRetentionTime and -Size: what is kept in Redis is part of what is kept."""
    # A topic's present values may have been written by hand.
    local = int(CONFIGS[name].check(checked.get(name, str(AS_TOTAL))))
    limit = int(CONFIGS[total].check(checked.get(total, "-1")))
    if limit >= 0 and local == -1:
        raise CONFIGS[name].invalid("-1", f"Value must not be -1 as {total} value is set as {limit}.")
    if 0 <= limit < local:
        raise CONFIGS[name].invalid(str(local), f"Value must not be more than property: {total} value.")


def defaults(settings: Settings) -> dict[str, str]:
    """Every config's value for a topic that sets none."""
    return {name: config.default(settings) for name, config in CONFIGS.items()}


class LazyDefaults(Mapping[str, str]):
    """Configs of a topic whose hash does not say, by the settings in the environment and the configuration file.

    The settings are loaded when the first one is asked for: that takes a fifth of a second, and a topic that Ketch made
    says everything.
    """

    def __getitem__(self, name: str) -> str:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _all(self) -> dict[str, str]:
        from ketch.configs.settings import Settings

        return defaults(Settings.load())
