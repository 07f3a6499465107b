"""Coordinators as machines without I/O and without a clock: groups by kind, and transactions."""
