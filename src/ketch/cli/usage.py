"""Mistakes on the command line as one sentence each: which option or argument, which value, what is allowed.

Typer's own errors are several lines, and repeat pydantic's words. It recognises them by their attributes, not by class,
because Typer has its own copy of Click in some versions and the real one in others. It prints nothing.
"""

from __future__ import annotations

import re
from typing import Any

from ketch.similar import hint

_NO_COMMAND = re.compile(r"No such command '(.*?)'")
_EXTRA = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)")
_LITERAL = re.compile(r"'.*' is not one of (.*)\.$", re.DOTALL)


def is_usage_error(error: Exception) -> bool:
    """Whether Typer raised it for what was typed."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def sentence(error: Any) -> str:
    """The mistake, without full stop.

    Args:
        error: one that `is_usage_error`.
    """
    context: Any = getattr(error, "ctx", None)
    path = f"`{context.command_path}`" if context is not None else "`ketch`"
    parameter = getattr(error, "param", None)
    option = getattr(error, "option_name", None)
    if option is not None:
        return _option(error, path, option)
    if parameter is not None and hasattr(error, "param_type"):
        return f"{path} needs {_named(parameter)}{_see_help(path, 'explains it')}"
    if parameter is not None:
        return _value(error, parameter)
    if found := _NO_COMMAND.match(error.message):
        near = hint(found[1], context.command.list_commands(context))
        return f"{path} has no command {found[1]}{near or _see_help(path, 'lists them')}"
    if found := _EXTRA.match(error.message):
        return f"{path} takes no further argument: {found[1]}"
    return f"{path}: {error.format_message()}".rstrip(".")


def _option(error: Any, path: str, option: str) -> str:
    if not hasattr(error, "possibilities"):  # a known one, without its value
        return f"{option} needs a value" if "requires" in error.message else f"{option}: {error.message}".rstrip(".")
    known = [name for parameter in error.ctx.command.params for name in parameter.opts] if error.ctx else []
    return f"{path} has no option {option}{hint(option, known) or _see_help(path, 'lists them')}"


def _see_help(path: str, does: str) -> str:
    return f"; {path[:-1]} -h` {does}"


def _named(parameter: Any) -> str:
    """As `-h` writes it: an option's long name, an argument in capitals."""
    names = [name for name in parameter.opts if name.startswith("--")]
    return names[0] if names else str(parameter.name).upper()


def _value(error: Any, parameter: Any) -> str:
    details: list[Any] = getattr(error.__cause__, "errors", list)()
    message = error.message.removeprefix("Value error, ")
    if literal := _LITERAL.search(message):
        message = f"it should be {_alternatives(literal[1])}"
    elif details:
        from ketch.configs.refusal import should_be

        message = should_be(details[0])
    given = f" = {details[0]['input']!r}" if details else ""
    return f"{_named(parameter)}{given} is not allowed: {message}".rstrip(".")


def _alternatives(quoted: str) -> str:
    """'a', 'b', 'c': the last with "or", as pydantic writes them."""
    *most, last = quoted.split(", ")
    return f"{', '.join(most)} or {last}" if most else last
