"""The coordinator of a transactional id (KIP-98)."""
