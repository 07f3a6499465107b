"""Records on the command line: reading, printing, and producing them."""
