"""Child processes that do not outlive this one, not even its kill -9."""

from __future__ import annotations

import os
import sys

# The child asks the kernel for a SIGTERM when its parent dies, so that it stops in order even after kill -9 of the
# parent (Linux: prctl PR_SET_PDEATHSIG = 1; it survives exec). Between fork and prctl the parent may have died already:
# then it is no longer the one named. An interpreter of its own costs 20 ms and spares the parent running Python between
# fork and exec, which is not safe once there are threads.
_LAUNCHER = """
import os, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def dying_with_us(program: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs `program`, an absolute path, as a child which gets a SIGTERM when this process dies.

    A thread that lives as long as the process must start it: on Linux the signal goes out when that thread ends.
    """
    return (sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), program, *arguments)
