"""Ketch: a Kafka broker whose log is Redis Streams."""

from __future__ import annotations

__version__: str


def __getattr__(name: str) -> str:
    """`__version__`, as the installation says; it comes from the tags (`tool.setuptools_scm`). Read when asked for:
    reading what is installed takes longer than to import this."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("ketch")
    except PackageNotFoundError:  # source that was never installed
        found = "unknown"
    globals()[name] = found
    return found
