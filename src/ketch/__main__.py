"""`python -m ketch`."""

from ketch.cli.main import main

main()
