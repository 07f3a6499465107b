"""How often the log says what goes wrong on one connection. Knows texts and times; the caller writes the log."""

from __future__ import annotations

from dataclasses import dataclass

_EVERY_S = 60.0  # an outage of Redis makes every request fail, twenty a second on a connection


@dataclass(slots=True)
class Complaints:
    """At most one line a minute, with the number of those left out; a line is not repeated while no other follows."""

    _said: str = ""
    _next: float = 0.0  # when another line may be written
    _left_out: int = 0

    def over(self) -> None:
        """What went wrong goes well again: where the same fails once more, that is worth a line of its own."""
        self._said = ""

    def line(self, text: str, now: float) -> str | None:
        """What to log for a request that went wrong, None for nothing.

        Args:
            text: what went wrong.
            now: a clock that only rises, seconds.
        """
        if text == self._said:
            return None
        if now < self._next:
            self._left_out += 1
            return None
        line = f"{text} (left out since the last line: {self._left_out})" if self._left_out else text
        self._said, self._next, self._left_out = text, now + _EVERY_S, 0
        return line
