"""The append module: a shared library that a Redis or Valkey loads. `csrc/append.c` has its commands.

Setup builds it where there is a C compiler, the embedded Valkey loads it, and others may. Nothing depends on it: each
new connection asks for its version, so a failover to a server without it ends its use.

Why a module: XADD costs a command and a reply for each record, and half of it is the append-only file. One command with
the records' bytes takes Valkey a quarter of the CPU for records of 100 bytes, and the broker neither decodes nor
encodes them. Replicas and the append-only file get one EVAL with the entries as arguments, or XADD and HSET in a
transaction. The module's own command is never replicated: a replica without the module would acknowledge it and have
nothing.
"""
