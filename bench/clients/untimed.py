"""`ketch` whose broker does not note how long requests and commands to Redis took: what the scenario `timing` compares
a broker with. Arguments as of `ketch`. Reading the clock, four times a request, is not taken out.
"""

from __future__ import annotations

from ketch.broker.places import Response
from ketch.cli.main import main
from ketch.redis.pipe import Pipe


def _nothing(*_: object) -> None:
    """In the place of what is taken out."""


Response.done = _nothing  # type: ignore[method-assign]
Pipe._time = _nothing  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
