"""Sends a signal to every process of a container, from a Pod that sees the processes of its node (hostPID).

    signals.py CONTAINER_ID STOP|CONT|KILL...

A process cannot be stopped from inside its own container: as process 1 of its namespace it takes no SIGSTOP from there.
Prints how many processes were sent it; exit status 1: none has that container's cgroup.
"""

import os
import signal
import sys
from pathlib import Path


def processes_of(container: str, proc: Path = Path("/proc")) -> list[int]:
    """Ids of the processes whose cgroup names the container."""
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            groups = (folder / "cgroup").read_text()
        except OSError:
            continue  # it has ended meanwhile
        if container in groups:
            found.append(int(folder.name))
    return sorted(found)


def main(container: str, name: str) -> int:
    """What the head of this file says."""
    number = signal.Signals[f"SIG{name}"]
    found = processes_of(container)
    for one in found:
        os.kill(one, number)
    sys.stdout.write(f"{len(found)}\n")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
