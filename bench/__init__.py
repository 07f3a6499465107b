"""How Ketch does beside Apache Kafka and the Redis it stands on.

A contestant is a server, a scenario a load on it. Every round starts each contestant afresh and puts its scenarios on
it, contestants in turn, so that what else the machine does hits all alike; a ratio is the median of the rounds' own
ratios, and only ratios mean anything on another machine.
"""
