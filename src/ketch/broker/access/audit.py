"""The audit log: who wanted to do what from where, and whether it was allowed, as lines of JSON.

It owns the logger `ketch.audit`, as Kafka has `kafka.authorizer.logger`: a denial is of level INFO, what is allowed of
level DEBUG. A denial that only hides something from a list is none, as in Kafka (`logIfDenied`). The fields of a line:

    time, principal, host, listener, client, api, operation, resource, name, allowed, rule, repeated

`repeated` counts the same decisions since the line before, which are not written each by itself: a client that tries
again and again gets one line in ten seconds. Without a file the lines are part of the broker's own log.

A file that cannot be written to, as its disk is full or its directory gone, changes no decision and no answer: lines
are lost, the broker's log says so at most once a minute, and the file is opened again for each later line.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ketch.broker.caller import Caller
from ketch.complaints import Complaints
from ketch.errors import ConfigError, reason
from ketch.security.acls import Operation, ResourceType
from ketch.security.rules import Decision

log = logging.getLogger("ketch.audit")
_failures = logging.getLogger(__name__)

_APART_S = 10.0
_KNOWN_MAX = 10_000  # decisions that are known to have been written lately

_Facts = tuple[str, str, str, str, str, str, str, str, bool, str]
_FIELDS = ("principal", "host", "listener", "client", "api", "operation", "resource", "name", "allowed", "rule")


class Audit:
    """Writes decisions down.

    Args:
        file: where lines go to; None: into the broker's log.
        level: "off", "denied" or "all".

    Attributes:
        all: what was allowed is written down, too.
        on: anything is.

    Raises:
        ConfigError: the file cannot be written to.
    """

    def __init__(self, file: Path | None, level: str) -> None:
        self.on, self.all = level != "off", level == "all"
        self._written: dict[_Facts, tuple[float, int]] = {}  # when a line may come again, and how many were left out
        log.setLevel(logging.DEBUG if self.all else logging.INFO)
        for handler in list(log.handlers):
            log.removeHandler(handler)
            handler.close()
        log.propagate = file is None
        if file is not None and self.on:
            log.addHandler(_handler(file))

    def note(
        self,
        decision: Decision,
        caller: Caller,
        client: str,
        api: str,
        operation: Operation,
        resource: ResourceType,
        name: str | None,
    ) -> None:
        """Takes down one decision.

        Args:
            client: the client id.
            name: of the resource; None for any one of the type.
        """
        facts = (
            *(caller.principal, caller.address, caller.listener, client, api),
            *(operation.name, resource.name, "*" if name is None else name, decision.allowed, decision.rule),
        )
        now = time.monotonic()
        until, repeated = self._written.get(facts, (0.0, 0))
        if now < until:
            self._written[facts] = (until, repeated + 1)
            return
        if len(self._written) >= _KNOWN_MAX:
            self.settle(now)
        if len(self._written) < _KNOWN_MAX:
            self._written[facts] = (now + _APART_S, 0)
        _write(facts, repeated)

    def settle(self, now: float) -> None:
        """Writes the lines that were left out and that no other one has followed.

        Args:
            now: seconds of the monotonic clock.
        """
        for facts in [facts for facts, (until, _) in self._written.items() if until <= now]:
            _, repeated = self._written.pop(facts)
            if repeated:
                _write(facts, repeated)


class _File(logging.handlers.WatchedFileHandler):
    """The file, which logrotate may move away."""

    def __init__(self, file: Path, encoding: str) -> None:
        self._complaints = Complaints()
        super().__init__(file, encoding=encoding)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # from opening it again
            self.handleError(record)
        if self.stream is not None:  # `handleError` closes it
            self._complaints.over()

    def handleError(self, record: logging.LogRecord) -> None:
        """Called while the error is handled, in place of printing it."""
        error = sys.exc_info()[1]
        with suppress(OSError):  # the same error again, of what was not written
            self.close()
        why = reason(error) if isinstance(error, OSError) else error
        text = f"audit_log = {self.baseFilename!r} cannot be written to: {why}. Decisions stand, their lines are lost."
        if line := self._complaints.line(text, time.monotonic()):
            _failures.error("%s", line)


def _handler(file: Path) -> logging.Handler:
    try:
        handler = _File(file, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"audit_log = {str(file)!r} cannot be written to: {reason(error)}.") from None
    handler.setFormatter(logging.Formatter("%(message)s"))
    return handler


def _write(facts: _Facts, repeated: int) -> None:
    line: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
    line |= zip(_FIELDS, facts, strict=True)
    if repeated:
        line["repeated"] = repeated
    log.log(logging.DEBUG if line["allowed"] else logging.INFO, json.dumps(line))
