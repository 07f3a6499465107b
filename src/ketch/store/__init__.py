"""Redis: key names, connections, streams, scripts and the topic catalog. The one seam the layouts lie behind."""
