"""What client connections of every protocol share: the bounds on what they hold, and the shell that keeps to them."""
