"""The benchmark: Ketch beside Apache Kafka and raw Redis commands.

A contestant is a server, a scenario a load on it, a row one number that a scenario measures. Each round starts every
contestant afresh and runs its scenarios on it. The contestants take turns, so other work on the machine slows all of
them alike. A ratio is the median of the rounds' own ratios; only ratios carry over to another machine.
"""
