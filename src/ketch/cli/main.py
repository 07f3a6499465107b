"""`ketch`: finds the command that was asked for and imports that one alone.

Exit codes: 0 done, 1 it failed, 2 it was called wrongly (a bad argument or setting). Errors are one sentence on stderr.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from ketch.cli.usage import is_usage_error, sentence
from ketch.errors import ConfigError, KetchError

STARTED = time.perf_counter()

# New objects before the garbage collector looks. With Python's 700 it took a tenth of a broker's start, where nearly
# all that is made stays, and a third of the time of a broker that was sent batches for 1,000 partitions; with this a
# twentieth. Bytes of records are freed without the collector.
_COLLECTED_AT = 50_000

# Each is a module of `ketch.cli.commands` with either `app`, a typer.Typer, or `command`, a function in Typer's
# annotations.
COMMANDS = (
    *("serve", "status", "top", "cluster", "topics", "groups", "acls", "users", "produce", "consume", "bench"),
    *("archive", "offset", "module", "redis", "certificates", "doctor", "version"),
)


class LazyGroup(TyperGroup):
    """Commands that are imported when they are named: `ketch version` should not wait for a Kafka client."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = load(cmd_name) if cmd_name in COMMANDS else None
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # by `ketch.__main__`
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return found


def load(name: str) -> Any:
    """The Click command of the module `name`."""
    module = import_module(f"ketch.cli.commands.{name}")
    sub: typer.Typer = getattr(module, "app", None) or _single(name, module.command)
    command = typer.main.get_command(sub)
    command.name = name
    for each in (command, *getattr(command, "commands", {}).values()):
        if any(parameter.name == "bootstrap" for parameter in each.params):
            each.params.append(_command_config())
    return command


def _begin(path: Path | None) -> None:
    from ketch.cli import client

    client.begin(path)


_CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        callback=_begin,
        expose_value=False,
        help="Properties of the client, as Kafka's tools take them: security.protocol, sasl.jaas.config, ...",
    ),
]


def _command_config() -> Any:
    """The option --command-config of a command that asks a Kafka broker, for `ketch.cli.client` alone."""

    def holder(command_config: _CommandConfig = None) -> None:
        """Typer makes options of a function's parameters alone."""

    return typer.main.get_command(_single("holder", holder)).params[0]


def _single(name: str, function: Any) -> typer.Typer:
    sub = typer.Typer(add_completion=False, rich_markup_mode=None)
    sub.command(name)(function)
    return sub


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        import_module("ketch.cli.commands.version").command()
        raise typer.Exit


@app.callback()
def _ketch(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A Kafka broker whose log is Redis Streams."""


def main() -> None:
    """Runs the command that was typed, and exits. Whatever fails is one sentence on stderr."""
    gc.set_threshold(_COLLECTED_AT)
    try:
        code = app(prog_name="ketch", standalone_mode=False)
    except KetchError as error:
        _fail(_with_refusal(str(error)), 2 if isinstance(error, ConfigError) else 1)
    except typer.Abort:  # of a question whether to go on: each is asked before anything is done
        _fail("nothing was changed", 1)
    except Exception as error:
        if not is_usage_error(error):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
            sys.exit(2)
        _fail(sentence(error), 2)
    sys.exit(code if isinstance(code, int) else 0)


def _with_refusal(why: str) -> str:
    """The sentence, and why the broker did not let the command in where that is behind it."""
    client = sys.modules.get("ketch.cli.client")
    refusal = client.refusal() if client else ""
    return f"{why.rstrip('.')} ({refusal})" if refusal else why


def _fail(why: str, code: int) -> NoReturn:
    print(f"ketch: {why.rstrip('.')}.", file=sys.stderr)
    sys.exit(code)
