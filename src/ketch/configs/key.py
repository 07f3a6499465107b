"""What one config is, of a topic or a broker: its name, type, range, default and documentation (Kafka's ConfigDef)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ketch.errors import InvalidConfig

if TYPE_CHECKING:
    from ketch.configs.settings import Settings

ConfigType = Literal["string", "int", "long", "double", "list", "boolean", "password"]
LONG_MAX, LONG_MIN = 2**63 - 1, -(2**63)
_BOUNDS = {"int": (-(2**31), 2**31 - 1), "long": (LONG_MIN, LONG_MAX)}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_THROTTLED = re.compile(r"|\*|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*")
_BOOLEANS = ("true", "false")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One config: its Kafka name and what it may be.

    Attributes:
        constant: the default, where it is not a setting's value.
        setting: the broker's setting that is the default.
        allowed: the words it may be; of a list, those it may hold.
        also: a number that is allowed beside those from `low` to `high`.
        fixed: set at creation, refused to change.
        synonym: the broker's config that its default comes from.
        field: of the topic hash; "" is the config's own name. The hash has names of its own for three.
        parse: of a string that is more than one of some words: raises ValueError, with the reason, where it cannot be.
        idle: why it has no effect here; "" where it has one.
        more: what the page adds to the documentation, in Markdown.
    """

    name: str
    type: ConfigType
    documentation: str
    constant: str = ""
    setting: str = ""
    allowed: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    also: int | None = None
    fixed: bool = False
    synonym: str | None = None
    field: str = ""
    parse: Callable[[str], object] | None = None
    idle: str = ""
    more: str = ""

    def __post_init__(self) -> None:
        if not self.field:
            object.__setattr__(self, "field", self.name)

    def default(self, settings: Settings) -> str:
        """Its value for a topic that sets none, where no broker config was changed at run time."""
        return str(getattr(settings, self.setting)) if self.setting else self.constant

    def check(self, value: str) -> str:
        """The value in its canonical form.

        Raises:
            InvalidConfig: wrong type or out of range (Kafka: INVALID_CONFIG 40).
        """
        if self.type == "boolean":
            if value.lower() not in _BOOLEANS:
                raise self.invalid(value, "Expected value to be either true or false")
            return value.lower()
        if self.type == "list":
            return self._list(value)
        if self.type == "string":
            return self._word(value) if self.parse is None else self._parsed(value, self.parse)
        number = self._double(value) if self.type == "double" else self._whole(value)
        self._check_range(number)
        return str(number)

    def _word(self, value: str) -> str:
        for option in self.allowed:
            if option.lower() == value.lower():
                return option
        raise self.invalid(value, f"String must be one of: {', '.join(self.allowed)}")

    def _parsed(self, value: str, parse: Callable[[str], object]) -> str:
        try:
            parse(value)
        except ValueError as error:
            raise self.invalid(value, str(error)) from None
        return value

    def _list(self, value: str) -> str:
        if not self.allowed:  # the two lists of throttled replicas
            if not _THROTTLED.fullmatch(value.rstrip(",")):
                form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
                why = f"{self.name} must be the literal '*' or a list of replicas in the following format: {form}"
                raise self.invalid(f"[{value}]", why)
            return value
        return ",".join(dict.fromkeys(self._word(each.strip()) for each in value.split(",")))

    def _whole(self, value: str) -> int:
        low, high = _BOUNDS[self.type]
        if not _WHOLE.fullmatch(value) or not low <= int(value) <= high:
            raise self.invalid(value, f"Not a number of type {self.type.upper()}")
        return int(value)

    def _double(self, value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise self.invalid(value, "Not a number of type DOUBLE")
        return number

    def _check_range(self, number: float) -> None:
        low, high = self.low, self.high
        if self.also is not None:
            if number != self.also and not (low is not None and high is not None and low <= number <= high):
                raise self.invalid(str(number), f"Value must be between {low} and {high} or equal to {self.also}")
        elif low is not None and number < low:
            raise self.invalid(str(number), f"Value must be at least {low}")
        elif high is not None and number > high:
            raise self.invalid(str(number), f"Value must be no more than {high}")

    def invalid(self, value: str, reason: str) -> InvalidConfig:
        """The error for a value of this config."""
        return InvalidConfig(f"Invalid value {value} for configuration {self.name}: {reason}")
