"""`ketch serve`: one broker in this process, or several as child processes."""
