"""What Redis keeps of share groups (KIP-932), for each layout of streams."""
