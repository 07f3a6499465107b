"""Addresses of clients as ACLs and quotas compare them: each in one form, however it was written. Pure."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address


@lru_cache(4096)
def canonical(host: str) -> str:
    """IPv6 in its short form, an IPv4 address within an IPv6 one by itself; what is no address stays as it is."""
    plain, percent, zone = host.partition("%")
    try:
        found = ip_address(plain)
    except ValueError:
        return host
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return f"{mapped or found}{percent}{zone}"
