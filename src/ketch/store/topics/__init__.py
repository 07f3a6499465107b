"""Topics in Redis: each one's hash, and what its archive announces."""
