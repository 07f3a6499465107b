"""Who may do what, as it lies in Redis: questions without I/O."""
