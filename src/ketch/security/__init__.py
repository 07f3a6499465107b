"""The rules of security, and no I/O beyond reading the files that settings name.

What is stored of them is `store.access`'s, what is asked of a client `broker.access`'s.
"""
