"""Orders of a shop: from raw JSON in a topic to checked, joined and summed tables and topics, see docs/pipeline.md."""
