"""Share groups on partitions (KIP-932): who of a group's members gets which records, and what became of them."""
