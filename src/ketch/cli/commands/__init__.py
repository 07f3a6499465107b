"""One module for each command of `ketch`."""
