"""Who may do what: pure rules, without I/O and clock."""
