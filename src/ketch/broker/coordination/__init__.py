"""What this broker coordinates: groups and transactions, who reads what, and which brokers share the work."""
