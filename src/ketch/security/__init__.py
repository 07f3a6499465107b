"""The rules of security. Pure: what is stored is `store.access`'s, and what is asked of a client `broker.access`'s."""
