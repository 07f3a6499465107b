"""The input of `ketch produce`: lines of files or of standard input, and how a line becomes a record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ketch.cli.output import unescape
from ketch.cli.records.formats import Encoding, from_json
from ketch.cli.records.sink import InputRecord
from ketch.errors import ConfigError


def opened(path: Path) -> Any:
    """A file to read bytes from. Raises ConfigError where that is not possible."""
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None


class Source:
    """Files, or standard input where there are none, as records.

    Attributes:
        size: bytes of all files, for the progress bar; None for standard input.
        interactive: a person types.
        problem: a sentence about the line that was no record and ended the input; else empty.
    """

    def __init__(self, files: list[Any]) -> None:
        self._files = files or [sys.stdin.buffer]
        self.size = sum(Path(file.name).stat().st_size for file in files) if files else None
        self.interactive = not files and sys.stdin.isatty()
        self.problem = ""

    def records(self, parse: Callable[[bytes], InputRecord | None]) -> Iterator[InputRecord]:
        """Up to the first line that is none.

        Args:
            parse: a record of a line, or None of one to skip; raises ValueError, with a phrase, for any other.
        """
        for file in self._files:
            for number, line in enumerate(file, 1):
                try:
                    record = parse(line.removesuffix(b"\n"))  # a last line without one counts as well
                except ValueError as error:
                    self.problem = f"Line {number} of {self._name(file)} is no record: {error}."
                    return
                if record is not None:
                    yield record

    def _name(self, file: Any) -> str:
        return "standard input" if self.size is None else str(file.name)


class Text:
    """A line of text: a value, or a key and a value with `separator` between. All have the same `options`.

    Raises:
        ConfigError: a separator that is empty or has a wrong escape.
    """

    def __init__(
        self, separator: str | None, null: str | None, key: Encoding, value: Encoding, options: Mapping[str, Any]
    ) -> None:
        self._separator = None if separator is None else unescape("--key-separator", separator)
        if self._separator == b"":
            raise ConfigError("--key-separator should not be empty.")
        self._null = None if null is None else null.encode(errors="surrogateescape")
        self._encoded = (key, value) != (Encoding.TEXT, Encoding.TEXT)
        self._key, self._value = key, value
        self._options = options

    def __call__(self, line: bytes) -> InputRecord:
        key: bytes | None = None
        value: bytes | None = line
        if self._separator is not None:
            head, found, tail = line.partition(self._separator)
            if found:
                key, value = head, tail
        if value == self._null:
            value = None
        if self._encoded:
            key = None if key is None else self._key.from_text(key)
            value = None if value is None else self._value.from_text(value)
        return key, value, self._options


class JsonLines:
    """A record in JSON, see formats.py; empty lines are skipped. `options` are added to those of the line."""

    def __init__(self, same_partition: bool, options: Mapping[str, Any]) -> None:
        self._same_partition, self._options = same_partition, options

    def __call__(self, line: bytes) -> InputRecord | None:
        if not line.strip():
            return None
        key, value, own = from_json(line, self._same_partition)
        headers = [*own.get("headers", ()), *self._options.get("headers", ())]
        return key, value, {**own, **self._options, **({"headers": headers} if headers else {})}
