"""Views of what any Kafka broker says, over confluent-kafka's AdminClient, which blocks for `answers.TIMEOUT` at most.

Where a fact needs Redis as well (lag in records), the view takes an `asker.Redis`, which runs the questions of
`ketch.views`. confluent-kafka is imported where it is used: it takes 0.1 s that `ketch --help` need not wait for.
"""
