"""What the shell proposes for a topic, a group or a topic config while a command is being typed.

The broker that the command line or the environment names is asked. A person waits at the prompt, so without an answer
within a second nothing is proposed, and no error is ever printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_PATIENCE_S = 1.0


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics of the broker that begin with what was typed."""
    return _asked(ctx, incomplete, lambda admin: admin.list_topics(timeout=_PATIENCE_S).topics)


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Consumer groups of the broker that begin with what was typed."""

    def listed(admin: AdminClient) -> Iterable[str]:
        found = admin.list_consumer_groups(request_timeout=_PATIENCE_S).result(_PATIENCE_S)
        return [group.group_id for group in found.valid]

    return _asked(ctx, incomplete, listed)


def configs(incomplete: str) -> list[str]:
    """Names of topic configs that begin with what was typed."""
    from ketch.configs.topic_table import CONFIGS

    return sorted(name for name in CONFIGS if name.startswith(incomplete))


def assignments(incomplete: str) -> list[str]:
    """The same as the beginning of KEY=VALUE."""
    return [f"{name}=" for name in configs(incomplete)]


def _asked(ctx: typer.Context, incomplete: str, ask: Callable[[AdminClient], Iterable[str]]) -> list[str]:
    from ketch.cli import client

    bootstrap = str(ctx.params.get("bootstrap") or client.DEFAULT_BOOTSTRAP)
    try:
        admin = client.admin(bootstrap, _PATIENCE_S)
        return sorted(name for name in ask(admin) if name.startswith(incomplete))
    except Exception:  # an error message would break the line being typed
        return []
