"""What people look at: status, topics, groups, brokers, archives. Each fact is read here once, whoever shows it.

A view is a function that returns frozen dataclasses, whose fields say their units. It changes nothing, prints nothing
and formats nothing: that is up to who shows it, the command line (`ketch.cli`) or the console (`ketch.console`). There
are two kinds of views:

- The modules of this package ask Redis, and nothing else. Each is a question (`redis.question`), so any driver runs it:
  `redis.blocking` in a command, `redis.link` on the broker's event loop. Only `views.tables` has none: it reads an
  Iceberg catalog, and blocks.
- The modules of `views.kafka` ask a broker through the Kafka protocol, with confluent-kafka's AdminClient, which
  blocks. They work with any Kafka broker. A process that is a broker itself has no use for them.

Views know `store` and `lake`. They do not know `log`, whose state is that of one broker's process.
"""
