"""What Ketch keeps in Redis: key names, questions about it, Lua scripts, and the layouts of streams. No I/O."""
