"""How batches and markers get into a partition's stream, whole or not at all."""
