"""Members of a share group as processes, on the Java client.

A member is started with BOOTSTRAP GROUP TOPIC MODE, which is `explicit` or `implicit`, and says on standard output what
it does, a line each:

    read V:N...        it was given these records: value and delivery count
    accepted V...      it has acknowledged these, and the broker has taken it

With explicit acknowledgements it releases a record whose value ends with 0 when that comes for the first time. At the
end of its standard input it closes its consumer and exits with 0.
"""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.java import compiled


class Sharer:
    """A running member, and what it has said so far.

    Args:
        log: where its standard error goes.

    Attributes:
        read: value and delivery count of each record that it was given.
        accepted: values.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, log: Path, mode: str = "explicit") -> None:
        target = compiled() / "target"
        path = f"{target / 'classes'}:{target / 'libs'}/*"
        options = ["-Xmx128M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path]
        self.log = log
        self.read: list[tuple[str, int]] = []
        self.accepted: list[str] = []
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                ["java", *options, "ketch.Sharer", bootstrap, group, topic, mode],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if not line.endswith("\n"):
                    return  # cut off by a kill
                verb, *words = line.split()
                if verb == "read":
                    self.read += [(value, int(count)) for value, count in (word.split(":") for word in words)]
                else:
                    self.accepted += words

    def leave(self) -> None:
        """Lets it close its consumer; an AssertionError if it does not end well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0, self.log.read_text()
        self._listener.join(10)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        self._listener.join(10)
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
