"""The way to Redis: RESP, questions without I/O, the drivers that run them, and the connections below."""
