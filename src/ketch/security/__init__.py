"""The rules of who a client is and what it may do, without I/O but reading files that settings name."""
