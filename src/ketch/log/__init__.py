"""One partition's log: append and read, whatever lies below. Offsets and batches up, entry ids and streams down."""
