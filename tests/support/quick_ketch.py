"""Asks for a command of `quick.py`, and is that command to whoever has started it. It imports next to nothing."""

import os
import signal
import socket
import sys


def main() -> None:
    asking = socket.socket(socket.AF_UNIX)
    asking.connect(sys.argv[1])
    arguments = [os.fsencode(argument) for argument in sys.argv[2:]]
    variables = [b"%s=%s" % pair for pair in os.environb.items()]
    words = b"\0".join([b"%d" % len(arguments), os.fsencode(os.getcwd()), *arguments, *variables])
    data = b"%d\n%s" % (len(words), words)
    if rest := data[socket.send_fds(asking, [data], [0, 1, 2]) :]:
        asking.sendall(rest)
    answer = asking.makefile("rb")
    command = int(answer.readline())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(command, number))
    code = os.waitstatus_to_exitcode(int(answer.readline()))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
