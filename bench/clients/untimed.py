"""`ketch` whose broker can be told not to note how long requests and commands to Redis took (SIGUSR2), and to note it
again (SIGUSR1); it begins with that. The scenario `timing` measures what that costs. It does so in one process, since
two brokers that do the same differ by more. Arguments as of `ketch`. Reading the clock, four times a request, is not
left out.
"""

from __future__ import annotations

import signal
from typing import Any

from ketch.broker.places import Response
from ketch.cli.main import main
from ketch.redis.pipe import Pipe

_NOTES = [(Response, "done", Response.done), (Pipe, "_time", Pipe._time)]


def _nothing(*_: object) -> None:
    """In the place of what is taken out."""


def _switch(number: int, frame: Any) -> None:
    for made, name, method in _NOTES:
        setattr(made, name, method if number == signal.SIGUSR1 else _nothing)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _switch)
    signal.signal(signal.SIGUSR2, _switch)
    main()
