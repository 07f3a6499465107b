"""The benchmark: Ketch beside Apache Kafka and raw Redis commands.

A contestant is a server, a scenario a load on it, a row one number that a scenario measures. Each round starts every
contestant afresh. In each scenario they take turns, number by number, so what slows the machine for a minute slows all
of them alike; a server whose turn it is not is idle. A ratio is the median of the rounds' own ratios; only ratios carry
over to another machine.
"""
