"""How the broker's log is written: text, or an object of JSON a line. `ketch serve` sets it up; everybody else logs as
usual. A `ClientName` among the arguments of a line, and its `extra={"facts": {...}}`, become fields of the object.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

_LINE_MAX = 4000  # characters; what a client has sent may stand in a line several times


class ClientName(str):
    """A client as lines of the log name it: "client-id at host:port", or "host:port" where it has no id.

    Attributes:
        id: the client id; None for none.
        address: "host:port".
    """

    id: str | None
    address: str

    def __new__(cls, address: str, client_id: str | None = None, shown: str | None = None) -> ClientName:
        """A name.

        Args:
            shown: the client id, fit for a line of the log.
        """
        made = super().__new__(cls, f"{shown or client_id} at {address}" if client_id else address)
        made.id, made.address = client_id, address
        return made


class Text(logging.Formatter):
    """One line for each record, whatever characters a client has put in a name; a traceback has lines of its own.

    Args:
        worker: the node id, where the process is one of several.
    """

    def __init__(self, worker: int | None) -> None:
        who = "" if worker is None else f"worker {worker} "
        super().__init__(f"%(asctime)s %(levelname)s {who}%(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.formatMessage`."""
        text = _short(super().formatMessage(record))
        return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _short(text: str) -> str:
    return text if len(text) <= _LINE_MAX else f"{text[:_LINE_MAX]}... ({len(text)} characters)"


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


class Json(logging.Formatter):
    """One line for each record: time, level, logger, message, and what else is known.

    Args:
        constants: fields of every line.
    """

    def __init__(self, constants: Mapping[str, Any]) -> None:
        super().__init__()
        self._constants = constants

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            **self._constants,
            "logger": record.name,
            "message": _short(record.getMessage()),
        }
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, ClientName):
                fields |= {"client": _short(argument.id or ""), "address": argument.address}
        fields |= getattr(record, "facts", {})
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return json.dumps(fields, ensure_ascii=False, default=str)


def set_up(form: Literal["text", "json"], level: str, worker: int | None) -> None:
    """Has everything be logged on stderr.

    Args:
        worker: the node id, where it is one of several processes of one `ketch serve`.
    """
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(Json({} if worker is None else {"worker": worker}))
    else:
        handler.setFormatter(Text(worker))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def announce(form: Literal["text", "json"], text: str) -> None:
    """Says something to whoever has started the program, on stdout, in the form of the log."""
    if form == "json":
        text = Json({}).format(logging.LogRecord("ketch", logging.INFO, "", 0, text, None, None))
    print(text, flush=True)
