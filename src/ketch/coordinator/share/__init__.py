"""Share groups (KIP-932): the coordinator assigns; several members may have one and the same partition."""
