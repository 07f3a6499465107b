"""Options that belong together as one parameter of a command: a dataclass whose fields are options.

Typer makes an option of each parameter that a command's signature has. `grouped` shows it the fields of such a
dataclass in place of the parameter. So the options are listed once, and a command passes them on as one value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer is to see it. Its parameters that are dataclasses have their fields' defaults."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        shown += _options(groups[name]) if name in groups else [_option(name, hints[name], parameter.default)]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return run


def _options(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return (_option(field.name, hints[field.name], field.default) for field in fields(group))


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
