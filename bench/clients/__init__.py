"""Programs that put a load on a server, each a process of its own."""
