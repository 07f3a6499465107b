"""What is wrong with a setting, in one sentence for the operator, from what pydantic's ValidationError says.

It opens no file, and no sentence shows the value of a secret setting.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from annotated_types import Ge, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from ketch.similar import hint

Fields = Mapping[str, FieldInfo]


def is_secret(field: FieldInfo) -> bool:
    """Whether nobody is to see the setting's value."""
    return bool(extra(field).get("secret"))


def extra(field: FieldInfo) -> Mapping[str, Any]:
    """What the settings say of a field beside its type and default: whether it is secret, whether a table."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def sentence(error: ValidationError, fields: Fields, config: Path | None, flags: Mapping[str, Any]) -> str:
    """The first thing that is wrong.

    Args:
        fields: all settings.
        config: the file, where there is one.
        flags: the settings that were given as options.
    """
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return f"{_message(first)}."
    key = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        near = hint(key, fields, 0.6) or f"; the settings are {', '.join(fields)}"
        return f"{config}: unknown setting {key}{near}."
    if key == "listener":  # the message names the setting within the table
        return f"{_message(first)}."
    return f"{not_allowed(_source(key, config, flags), fields[key], first)}."


def not_allowed(named: str, field: FieldInfo, details: Any, where: str = "") -> str:
    """That a setting cannot have its value, and what it should be, as a phrase.

    Args:
        named: the setting as the operator wrote it.
        details: one of the errors in a ValidationError.
        where: further words about the place, with a space before.
    """
    shown = "" if is_secret(field) else f" = {details['input']!r}"
    return f"{named}{shown}{where} is not allowed: {_should_be(field, details)}"


def _source(key: str, config: Path | None, flags: Mapping[str, Any]) -> str:
    """What the operator wrote: the flag, the environment variable, or the key in the file."""
    if key in flags:
        return "--" + key.replace("_", "-")
    variable = f"KETCH_{key.upper()}"
    return variable if os.environ.get(variable) else f"{config}: {key}"


def _should_be(field: FieldInfo, details: Any) -> str:
    """Of a number always the whole range, whatever is wrong with the value."""
    bounds = [bound for bound in _metadata(field) if isinstance(bound, Ge | Le)]
    if details["type"] == "value_error" or not bounds:
        return should_be(details)
    least = [f"{bound.ge}" for bound in bounds if isinstance(bound, Ge)]
    most = [f"{bound.le}" for bound in bounds if isinstance(bound, Le)]
    return f"it should be a whole number {f'from {least[0]} to {most[0]}' if most else f'of at least {least[0]}'}"


def _metadata(field: FieldInfo) -> list[Any]:
    """The constraints on a field, those within `| None` too."""
    within = [found for kind in get_args(field.annotation) for found in getattr(kind, "__metadata__", ())]
    nested = [bound for info in within if isinstance(info, FieldInfo) for bound in info.metadata]
    return [*field.metadata, *within, *nested]


# By pydantic's type of error, with the fields of its context
_SHOULD_BE = {
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "path_type": "a path",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
}


def should_be(details: Any) -> str:
    """What a value should be, by one of the errors in pydantic's ValidationError: "it should be at least 10"."""
    phrase = _SHOULD_BE.get(details["type"])
    if phrase is None:
        return _message(details)
    return f"it should be {phrase.format(**details.get('ctx', {}))}"


def _message(details: Any) -> str:
    return str(details["msg"]).removeprefix("Value error, ").replace("Input should", "it should")
