"""The main loop of the clients here that are Python: an order is a JSON line, and so is its answer. See README.md.

It is imported by scripts that run on their own, and knows nothing of the tests.
"""

import json
import logging
import sys


class Kept(logging.Handler):
    """What the client has logged since the last order: some say there why they could not do it, and nowhere else."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def serve(version, orders):
    """Carries out the orders on standard input until it ends.

    Args:
        orders: by the name of each a function that takes it and gives the answer, or raises.
    """
    kept = Kept()
    logging.getLogger().addHandler(kept)
    print(json.dumps({"version": version}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        kept.lines.clear()
        try:
            answer = orders[order["do"]](order)
        except Exception as error:
            answer = {"error": type(error).__name__, "message": "; ".join([str(error) or repr(error), *kept.lines])}
        print(json.dumps(answer), flush=True)
