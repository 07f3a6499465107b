"""`ketch serve`: a broker, with an embedded Valkey unless a Redis is named."""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from ketch import logs
from ketch.cli.serving.report import Reporter
from ketch.cli.serving.run import Serve
from ketch.configs.settings import Settings, has_option
from ketch.errors import ConfigError, KetchError

_EMBEDDED = ("redis_port", "redis_auth", "shards", "fsync", "data_dir")  # settings of the embedded Valkey alone


def command(config: Path | None, **flags: Any) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Every option is also an environment variable (--data-dir: KETCH_DATA_DIR) and a key of the --config file
    (data_dir); an option beats the variable, the variable the file. ketch.toml documents them all.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    settings = Settings.load(config, given)
    _refuse_contradictions(settings, given)
    reporter = Reporter.of_environment()
    logs.set_up(settings.log_format, settings.log_level, settings.node_id if reporter else None)
    # Where Hypothesis is installed, kio imports it to describe its types to it, which takes longer than all else that
    # kio does and is of no use here. None has that import fail, as where it is not installed.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    import uvloop

    if settings.workers > 1:
        from ketch.cli.serving.workers import Workers

        sys.exit(uvloop.run(Workers(settings).run()))
    try:
        code = uvloop.run(Serve(settings, reporter).run())
    except KetchError as error:
        if reporter is None:
            raise
        reporter.failed(str(error))
        sys.exit(1)
    # Not sys.exit, which waits for every thread: one may hang in a read of the archive for as long as its storage does.
    os._exit(code)


def _refuse_contradictions(settings: Settings, given: Mapping[str, Any]) -> None:
    """Raises ConfigError for an option on the command line that would have no effect.

    In the file and the environment they are no contradiction: `--redis` there overrides what is meant for other runs.
    """
    if settings.redis is None:
        return
    useless = [f"--{name.replace('_', '-')}" for name in _EMBEDDED if name in given]
    if useless:
        last = f"{', '.join(useless[:-1])} and {useless[-1]} are" if useless[1:] else f"{useless[0]} is"
        raise ConfigError(
            f"{last} for the embedded Valkey, and the setting redis names another server: give one or the other."
        )


# -- options, one for each setting


def _options() -> list[inspect.Parameter]:
    config = Annotated[Path | None, typer.Option("--config", envvar="KETCH_CONFIG", help="A TOML file of settings.")]
    parameters = [inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=config)]
    for name, field in Settings.model_fields.items():
        if not has_option(name):
            continue
        flag, kind = name.replace("_", "-"), _plain(field.annotation)
        switch = kind is bool
        option = typer.Option(
            f"--{flag}/--no-{flag}" if switch else f"--{flag}",
            help=f"{field.description}{_default(field.default)}",
            show_default=False,
            metavar=None if switch else _metavar(kind),
        )
        # As text: Settings alone says what a value may be, wherever it comes from.
        annotation = Annotated[bool | None, option] if switch else Annotated[str | None, option]
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return parameters


def _plain(annotation: Any) -> Any:
    """The type without `| None` and constraints."""
    if get_origin(annotation) in (types.UnionType, Union):
        (annotation,) = (kind for kind in get_args(annotation) if kind is not type(None))
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _metavar(kind: Any) -> str:
    """What stands for the value in --help, as Typer writes it."""
    if get_origin(kind) is Literal:
        return f"<{'|'.join(get_args(kind))}>"
    return {int: "<int>", Path: "<path>"}.get(kind, "<str>")


def _default(default: Any) -> str:
    if default is None:
        return ""
    return f" [default: {('off', 'on')[default] if isinstance(default, bool) else default}]"


# Typer reads a command's options from its signature; the settings' own fields are the one list of them.
_parameters = _options()
command.__signature__ = inspect.Signature(_parameters)  # type: ignore[attr-defined]
command.__annotations__ = {parameter.name: parameter.annotation for parameter in _parameters}
