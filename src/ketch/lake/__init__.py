"""The archive on disk: every topic as an Iceberg table. It knows nothing of Redis.

Needs pyarrow and pyiceberg (the extra `spark`).
"""
