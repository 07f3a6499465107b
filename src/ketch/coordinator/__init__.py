"""The classic group protocol: who is in a group, which generation it is in, who was assigned what. No I/O, no clock."""
