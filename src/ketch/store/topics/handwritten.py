"""Reads the values of a topic's hash as people and other programs may have written them.

A number may be a fraction, an id may be in the form of Kafka's Uuid.toString, a word may be in any case. What cannot be
read is replaced by a default that deletes nothing, with one line in the log, or raises ValueError where a guess would
give records other offsets. No I/O; knows nothing of topics beyond the values.
"""

from __future__ import annotations

import base64
import logging
import math
import uuid
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar

from ketch.configs.key import ConfigKey
from ketch.configs.topic_table import CONFIGS
from ketch.errors import InvalidConfig

T = TypeVar("T")

log = logging.getLogger(__name__)

_INT64 = 2**63
_UUID_TEXT = 22  # characters of Uuid.toString


def read_number(text: str, low: int = 0, high: int = _INT64 - 1) -> int:
    """A whole number, a fraction rounded.

    Raises:
        ValueError: it is no number, or not within `low` to `high`.
    """
    try:
        number = int(text)
    except ValueError:
        number = _rounded(text)
    if not low <= number <= high:
        raise ValueError(f"{text!r} is not within {low} to {high}")
    return number


def _rounded(text: str) -> int:
    try:
        fraction = float(text)
    except ValueError:
        fraction = math.nan
    if not -_INT64 < fraction < _INT64:  # NaN too
        raise ValueError(f"{text!r} is no number")
    return round(fraction)


def number_or(default: int, where: str, text: str | None, high: int = _INT64 - 1) -> int:
    """As `read_number`; `default`, and a line in the log that begins with `where`, for what is no such number."""
    if not text:
        return default
    try:
        return read_number(text, 0, high)
    except ValueError as error:
        complain(f"{where}: {error}, {default} is used instead")
        return default


def read_id(text: str) -> uuid.UUID:
    """A topic id, as `uuid` or as Kafka writes it (URL-safe base64 without padding); ValueError for anything else."""
    if len(text) == _UUID_TEXT:
        return uuid.UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    return uuid.UUID(text)


def read_field(hash_: Mapping[str, str], name: str, read: Callable[[str], T]) -> T:
    """A field that every topic has; ValueError where it is missing or `read` cannot read it."""
    if name not in hash_:
        raise ValueError(f"it has no field {name}")
    try:
        return read(hash_[name])
    except ValueError:
        raise ValueError(f"{name} is {hash_[name]!r}") from None


def read_configs(topic: str, hash_: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Every topic config by Kafka's name, in its canonical form.

    Args:
        hash_: the topic's hash, by field.
        defaults: of configs that the hash does not have.

    Raises:
        ValueError: one that was fixed at creation cannot be read.
    """
    return {name: _config(topic, config, hash_.get(config.field), defaults) for name, config in CONFIGS.items()}


def _config(topic: str, config: ConfigKey, text: str | None, defaults: Mapping[str, str]) -> str:
    default = defaults[config.name]
    if text is None or text == default:  # most are; each topic in use is read every second
        return default
    text = text.strip()
    if config.name == "compression.type" and text.lower() == "none":
        return "uncompressed"
    try:
        return config.check(str(read_number(text, -_INT64)) if config.type in ("int", "long") else text)
    except (ValueError, InvalidConfig) as error:
        if config.fixed:
            raise ValueError(f"{config.field}: {error}") from None
        # A limit that nobody can read must not delete records.
        instead = "-1" if "retention." in config.name else default
        complain(f"topic {topic}: {config.field}: {error}, {instead} is used instead")
        return instead


@lru_cache(1024)
def complain(text: str) -> None:
    """A line in the log; the same one is not written again, however often the hash is read."""
    log.warning(text)
