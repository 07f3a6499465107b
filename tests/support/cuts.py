"""Cuts in the network between servers that have loopback addresses of their own, by rules for the kernel's packets.

Packets are dropped, so neither side is told: connections stay open and silent, as when a cable is pulled. The rules
speak of the servers' own network alone, and go with the object.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import Self

HOME = "127.0.0.1"  # the address that brokers and clients have towards these servers


@cache
def why_not() -> str | None:
    """Why no network can be cut here, for a printed reason; None where it can be."""
    if shutil.which("nft") is None:
        return "there is no nft (Debian: apt-get install nftables)"
    tried = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"nft: {tried.stderr.strip()}"


def network() -> str:
    """The first three numbers of addresses that no other process of the tests uses: `127.77.5`."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 8) % 64}.{pid % 256}"


class Cuts:
    """The cuts of one network, none at first."""

    def __init__(self, network: str) -> None:
        self._table = f"inet ketch_test_{os.getpid()}"
        nodes = f"{network}.0/24"
        drops = [
            f"ip saddr {nodes} ip daddr @alone drop",
            f"ip saddr @alone ip daddr {nodes} drop",
            f"ip saddr {HOME} ip daddr @unreachable drop",
            f"ip saddr @unreachable ip daddr {HOME} drop",
        ]
        sets = "".join(f"set {name} {{ type ipv4_addr; }}\n" for name in ("alone", "unreachable"))
        chain = f"chain cuts {{ type filter hook input priority 0; {'; '.join(drops)}; }}"
        _nft(f"table {self._table} {{\n{sets}{chain}\n}}")

    def isolate(self, host: str) -> None:
        """No other server reaches it, and it reaches none; its clients do."""
        _nft(f"add element {self._table} alone {{ {host} }}")

    def hide(self, host: str) -> None:
        """No client reaches it; the other servers do."""
        _nft(f"add element {self._table} unreachable {{ {host} }}")

    def heal(self, host: str) -> None:
        """Undoes both."""
        for name in ("alone", "unreachable"):
            _nft(f"add element {self._table} {name} {{ {host} }}\ndelete element {self._table} {name} {{ {host} }}")

    def close(self) -> None:
        _nft(f"delete table {self._table}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _nft(rules: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True, capture_output=True)
