"""`ketch` and `python -m ketch`: Ctrl-C ends it at any time, and never with a traceback from the midst of an import."""

from __future__ import annotations

import signal


def main() -> None:
    """Runs the command that was typed, and exits. While imports run, SIGINT ends the process as it does in C."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as in a script's background jobs
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ketch.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
