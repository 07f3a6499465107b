"""Members of share groups, as far as the brokers that lead partitions know them (KIP-932)."""
