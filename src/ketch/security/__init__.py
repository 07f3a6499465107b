"""Who may connect and as whom: rules without I/O, beyond reading the files that the settings name."""
