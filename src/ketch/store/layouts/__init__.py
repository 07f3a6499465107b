"""The seam between the layouts of a stream: above it batches, records and offsets, below it entries."""
