"""Redis: questions without I/O and their drivers, key names, Lua scripts, and the seam behind which the layouts lie."""
