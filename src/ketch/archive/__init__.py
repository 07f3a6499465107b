"""The archive job: copies every record of every topic into an Iceberg table exactly once. `ketch archive` runs it.

It decides what is read from Redis, written to data files and committed to the tables, in which order, and what is
announced to brokers. `ketch.lake` owns the tables, `ketch.store` the questions to Redis, `ketch.spark` reads ranges of
partitions.
"""
