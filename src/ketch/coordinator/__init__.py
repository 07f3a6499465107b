"""What one broker decides for all of them, as machines without I/O and without a clock.

`machine` says what a machine is. Each kind of group has a package of its own, and so have transactions. What runs them,
and Redis's side of them, is in `broker.coordination`; a machine may not import from there.
"""
