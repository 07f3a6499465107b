"""The kinds of machines that coordinators run: one file for each, which says what is particular to it."""
