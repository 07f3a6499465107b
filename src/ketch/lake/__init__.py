"""The archive: every topic as an Iceberg table. Needs the `spark` extra's pyarrow and pyiceberg."""
