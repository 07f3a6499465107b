"""What happens to a log without a request: retention and compaction."""
