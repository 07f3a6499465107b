"""Every error that Ketch raises on purpose. Each message is one sentence for whoever meets it."""

from __future__ import annotations


class KetchError(Exception):
    """The base of all of them."""


class ConfigError(KetchError):
    """A setting, file or command-line value that cannot be used."""


class StorageUnavailable(KetchError):
    """Redis cannot be reached, does not answer in time or refuses; Kafka's KAFKA_STORAGE_ERROR (56)."""


class RedisError(KetchError):
    """Redis answered a command with an error; the text is Redis's."""
