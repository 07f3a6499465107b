"""The clients that are processes and not Python, built once and cached by their content, outside the repository."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support import java
from tests.support.cache import kept, run

CLIENTS = Path(__file__).parents[1] / "clients"


def java_member() -> list[str]:
    return java.command("ketch.Member")


def java_share_member() -> list[str]:
    """A member of a share group; it has no strategy."""
    return java.command("ketch.ShareMember")


def go_share_member() -> list[str]:
    """The same on franz-go."""
    return go("share-member")


def java_share_admin() -> list[str]:
    """Alters and deletes what is kept of a share group: BOOTSTRAP GROUP TOPIC OFFSET."""
    return java.command("ketch.ShareAdmin")


def java_sender() -> list[str]:
    """A producer in the middle of a transaction."""
    return java.command("ketch.Sender")


def go(verb: str) -> list[str]:
    """A client on franz-go: a member, a sender, a copier or a member of a share group."""
    home = _built(CLIENTS / "go", ["go", "build", "-o", "client", "."])
    return [str(home / "client"), verb]


_NPM = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]


def node(name: str) -> list[str]:
    """A client on KafkaJS: a member or a sender."""
    return ["node", str(_built(CLIENTS / "node", _NPM) / f"{name}.js")]


def node_legacy() -> list[str]:
    """The npm package kafka, of the time of Kafka 0.6; it uses what Node deprecated later."""
    return ["node", "--no-deprecation", str(_built(CLIENTS / "node07", _NPM) / "client.js")]


def _built(source: Path, command: list[str]) -> Path:
    """A copy of `source` in the cache, in which `command` has been run.

    Raises:
        RuntimeError: with the end of what the command said.
    """
    files = sorted(path for path in source.iterdir() if path.is_file())

    def build(home: Path) -> None:
        for file in files:
            shutil.copy(file, home)
        run(home, *command)

    return kept(source.name, build, *(path.read_bytes() for path in files))
