"""Ketch: a Kafka broker whose log is Redis Streams."""

from __future__ import annotations

__version__ = "0.1.0"
