"""The classic group protocol: who is in a group, its generation, who was assigned what. `group` has the machine."""
