"""Opens connections, asks each for ApiVersions once, says "ready" and holds them until stdin closes.

Argument: JSON with `server`, `count`.
"""

from __future__ import annotations

import json
import socket
import sys

from frames import api_versions

_AT_ONCE = 100  # less than any listen backlog


def main() -> None:
    options = json.loads(sys.argv[1])
    host, _, port = options["server"].rpartition(":")
    kept: list[socket.socket] = []
    while len(kept) < options["count"]:
        fresh = [
            socket.create_connection((host, int(port)), 30) for _ in range(min(_AT_ONCE, options["count"] - len(kept)))
        ]
        for one in fresh:
            one.sendall(api_versions())
        for one in fresh:
            if not one.recv(65536):
                sys.exit(f"connection {len(kept)} was closed")
        kept += fresh
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
