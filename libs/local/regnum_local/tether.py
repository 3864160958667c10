"""Ties a process to the one that starts it: ``python -m regnum_local.tether PARENT_PID PROGRAM ARGUMENT...``.

The kernel sends the process SIGTERM when the launcher dies, however it dies, so nothing is left over on a developer's
machine. A program of its own because the alternative, running Python between fork and exec in the launcher, is not safe
beside the threads of gRPC. What a frozen machine or a stopped process keeps from ending is found by its record later.
"""

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Ask for the signal, make sure that the launcher is still there, become the program."""
    parent_pid, program, *arguments = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != int(parent_pid):
        sys.exit("the launcher died before this process was ready")
    os.execv(program, [program, *arguments])  # noqa: S606 - the launcher's own command line


if __name__ == "__main__":
    main()
