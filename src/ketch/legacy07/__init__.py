"""The Kafka 0.6/0.7 protocol beside today's, over the same log: codec, byte positions, listener, ZooKeeper's registry.

`ketch serve --legacy-port` starts it; without that option nothing imports this package. `messages`, `requests` and
`responses` are the codec, without I/O. `bytelog` turns byte positions into the log's entries and back. `connection` and
`listener` are the thin shell around both, `registry` tells ZooKeeper what is here.
"""
