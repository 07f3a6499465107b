"""`ketch offset`: Redis entry ids and Kafka offsets, from one to the other."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from ketch.cli.output import Json, show_json
from ketch.errors import ConfigError
from ketch.store.offsets import MAX_BITS, MAX_OFFSET, MIN_BITS, OffsetNumbering

app = typer.Typer(
    help="Convert between Redis entry ids and Kafka offsets.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Bits = Annotated[int, typer.Option("--bits", min=MIN_BITS, max=MAX_BITS, help="The topic's offsetSequenceBits.")]
Dense = Annotated[bool, typer.Option("--dense", help="The topic has offset.ids=dense.")]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@app.command()
def encode(
    entry_id: Annotated[str, typer.Argument(help="An entry id, e.g. 1700000000000-0.")],
    bits: Bits = MIN_BITS,
    dense: Dense = False,
    as_json: Json = False,
) -> None:
    """The Kafka offset of a Redis entry id, and its time."""
    numbering = OffsetNumbering(bits, dense)
    try:
        ms, seq = numbering.parse_id(entry_id.encode(errors="replace"))
    except ValueError:
        raise ConfigError(f"{entry_id!r} is not an entry id; one looks like 1700000000000-0.") from None
    offset = numbering.to_offset(ms, seq)
    if not 0 <= offset <= MAX_OFFSET:
        raise ConfigError(f"Entry id {entry_id} has no offset: it would be {offset}, and offsets are 0 to 2^63-1.")
    _show(str(offset), entry_id, offset, _time(ms, dense), as_json)
    other = numbering.format_id(*numbering.to_id(offset)).decode()
    if other != f"{ms}-{seq}":
        print(f"ketch: entry id {other} has the same offset: {seq} does not fit into {bits} bits.", file=sys.stderr)


@app.command()
def decode(
    offset: Annotated[int, typer.Argument(min=0, max=MAX_OFFSET, help="A Kafka offset.")],
    bits: Bits = MIN_BITS,
    dense: Dense = False,
    as_json: Json = False,
) -> None:
    """The Redis entry id of a Kafka offset, and its time."""
    numbering = OffsetNumbering(bits, dense)
    ms, seq = numbering.to_id(offset)
    entry_id = numbering.format_id(ms, seq).decode()
    _show(entry_id, entry_id, offset, _time(ms, dense), as_json)


def _show(answer: str, entry_id: str, offset: int, time: str | None, as_json: bool) -> None:
    if as_json:
        show_json({"id": entry_id, "offset": offset, "time": time})
    else:
        typer.echo(f"{answer}\t{time}" if time else answer)


def _time(ms: int, dense: bool) -> str | None:
    """ISO 8601; None for dense ids, which count, and beyond the year 9999."""
    try:
        return None if dense else (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return None
