"""Redis: key names, the two connections, streams, scripts and the topic catalog. The one seam the layouts lie behind."""
