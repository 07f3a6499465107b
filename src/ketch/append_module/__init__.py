"""The append module: a shared library that a Redis or Valkey loads."""
