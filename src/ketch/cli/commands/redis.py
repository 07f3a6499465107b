"""`ketch redis user ROLE`: the rule that gives a Redis user the rights of one role and no other (`store.rights`).

It connects to nothing: its output is for redis-cli, or for the server's file of users. A password is read from stdin
alone, and only its hash is printed, so no password appears in arguments, in the shell's history or in a file.
"""

from __future__ import annotations

import hashlib
import re
import sys
from typing import Annotated

import typer

from ketch.errors import ConfigError
from ketch.store.keys import Keyspace
from ketch.store.rights import ROLES

app = typer.Typer(help="Users of Redis's own.", no_args_is_help=True)

# Redis refuses it, so a rule whose password was forgotten makes no user.
_NO_PASSWORD = "#SHA256-OF-THE-PASSWORD"
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")


@app.callback()
def _redis() -> None:
    """Users of Redis's own."""


@app.command()
def user(
    role: Annotated[str, typer.Argument(help=f"Whose rights: {', '.join(ROLES)}.")],
    name: Annotated[str | None, typer.Option(help="The user's name; default: ketch, or ketch-ROLE.")] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from stdin; its hash is printed.")
    ] = False,
    keyspace: Annotated[str, typer.Option(envvar="KETCH_KEYSPACE", help="First part of every key.")] = "korvet",
    topic: Annotated[str | None, typer.Option(help="Of spark, reader, writer: this topic alone.")] = None,
    module: Annotated[bool, typer.Option("--module", help="The server has loaded the append module.")] = False,
    on_disk: Annotated[bool, typer.Option("--on-disk", help="The setting copies_on_disk is on.")] = False,
    redis6: Annotated[bool, typer.Option("--redis6", help="The server is Redis 6.2.")] = False,
    acl_file: Annotated[bool, typer.Option("--acl-file", help="A line for the server's aclfile or config.")] = False,
) -> None:
    """Print the ACL SETUSER command for a least-privilege Redis user.

    Pipe it into redis-cli; then ACL SAVE or CONFIG REWRITE keeps the user over restarts of the server.
    """
    chosen = ROLES.get(role)
    if chosen is None:
        raise ConfigError(f"There is no role {role}; roles are {', '.join(ROLES)}.")
    if topic is not None and (role not in ("spark", "reader", "writer") or not _TOPIC.fullmatch(topic)):
        raise ConfigError("--topic is for spark, reader and writer, and names one topic.")
    for text in (name, keyspace):
        if text is not None and (not text or any(c in '{}"' or c.isspace() for c in text)):
            raise ConfigError("A name and a keyspace are words without braces, quotes and white space.")
    password = _hash(sys.stdin.readline()) if password_stdin else _NO_PASSWORD
    rules = chosen.rules(Keyspace(keyspace), module, on_disk, redis6, topic)
    begin = "user" if acl_file else "ACL SETUSER"
    print(begin, name or chosen.user, "reset", "on", password, "resetchannels", *rules)


def _hash(line: str) -> str:
    """The password of a line, as Redis keeps it."""
    password = line.rstrip("\r\n")
    if not password:
        raise ConfigError("There is no password on stdin.")
    return "#" + hashlib.sha256(password.encode()).hexdigest()
