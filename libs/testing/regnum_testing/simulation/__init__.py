"""Whole clusters of shipped services and the real SDK, in one thread under virtual time: the same seed, the same run.

loop        virtual time; callbacks know their process, so that one can be killed or paused at any of them
network     links, connections and what they carry: delay, order, loss, cuts
servers     grpc.aio's server over it
channels    grpc.aio's channel over it
machine     what processes run on (``regnum_service.machine``): the above, threads that are turns of the loop, chance
disks       files that a loss of power takes back to what was synced
stores      sessions with a store whose answers take time, get lost, or come late
cluster     the processes: start, stop, kill, pause, cut
load        what clients do: records, readers, a group, changes of topics
schedules   what happens to processes, by seed and by what has just happened; the smallest that still fails
judge       what must hold of records, leaders, high watermarks, groups and metadata
run         one seed after another, each in a process of its own:  python -m regnum_testing.simulation 1-20
mutants     faults that are put into the product on purpose, and the hunt for them
soak        seeds for hours, and the scoreboard of what they came to
"""

import os
import sys
from typing import Final

VARIABLE: Final = "PYTHONHASHSEED"
OPTION: Final = "--hash-seed"
DEFAULT: Final = "0"


def pin(module: str) -> None:
    """Start this process anew with the hash seed that its command line names, unless it runs with that.

    The order of sets of texts is part of a run, and Python draws it for each process (decision 121).

    Args:
        module: as ``python -m`` takes it.
    """
    words = sys.argv[1:]
    told = words[words.index(OPTION) + 1] if OPTION in words[:-1] else DEFAULT
    if os.environ.get(VARIABLE) != told:
        os.execve(  # noqa: S606 - itself
            sys.executable, [sys.executable, "-m", module, *words], {**os.environ, VARIABLE: told}
        )
