"""The command lines and the Python of the documentation, run as a reader would."""
