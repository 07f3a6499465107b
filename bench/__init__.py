"""What Ketch costs, against the Redis it stands on: contestant x scenario x client -> records per second.

A contestant is a server that is started afresh, a scenario a load, a client a program that puts the load on one kind of
contestant. Every cell runs in every round, contestants in turn, so that what else the machine does hits all alike; only
ratios of such runs mean anything.
"""
