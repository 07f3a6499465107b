"""The command `ketch`."""
