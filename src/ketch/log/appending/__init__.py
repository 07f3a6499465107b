"""The way of a batch into a partition: what it must be, and the queue that puts it there."""
