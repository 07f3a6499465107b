"""What kio's schemas say of a field, for the plans of requests (`wire.bounds`) and of responses (`wire.responses`)."""

from __future__ import annotations

import typing
from typing import Any

# kio's words for numbers, each with its letter of `struct`.
NUMBERS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "error_code": "h",
    "int32": "i",
    "uint32": "I",
    "timedelta_i32": "i",
    "int64": "q",
    "timedelta_i64": "q",
    "float64": "d",
}


def unwrap(hint: Any) -> tuple[bool, Any, bool]:
    """(is it an array, the type inside `tuple[T, ...] | None` or `T | None`, may it be None)."""
    options = [option for option in typing.get_args(hint) if option is not type(None) and option is not Ellipsis]
    if typing.get_origin(hint) is tuple:
        return True, options[0], False
    if len(options) == 1:
        array, element, _ = unwrap(options[0])
        return array, element, True
    return False, hint, False
