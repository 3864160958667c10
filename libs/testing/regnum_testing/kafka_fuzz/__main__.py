"""Attacks the codec and the listener of Kafka's protocol.

python -m regnum_testing.kafka_fuzz codec --inputs 1000000     mutants of recorded requests, read
python -m regnum_testing.kafka_fuzz listener --inputs 50000    mutants, sent to a cluster in this process
python -m regnum_testing.kafka_fuzz dear                       requests with as many items as one may have

Exit 1: something took more than 50 ms of its thread's time (times the slowness of the machine, which is measured), or
memory grew by more than 256 MiB. An error without an answer of its own ends it with a traceback.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from regnum_testing.held_loop import LIMIT_S, slowness
from regnum_testing.kafka_fuzz.dear import dear_requests
from regnum_testing.kafka_fuzz.findings import Findings, fuzz_codec
from regnum_testing.kafka_fuzz.listener import ListenerAttack, attacked
from regnum_testing.kafka_fuzz.sessions import recorded_sessions
from regnum_testing.process_memory import resident_bytes

GROWTH_BYTES_MAX: Final = 256 * 1024 * 1024


def main() -> int:
    """Of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("codec", "listener", "dear"))
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=35)
    parser.add_argument("--only", default="", help="of the dear requests, those whose name has this in it")
    given = parser.parse_args()
    frames = [frame for session in recorded_sessions().values() for frame in session]
    slow = slowness()
    if given.what == "codec":
        before = resident_bytes(os.getpid())
        found = fuzz_codec(frames, given.inputs, given.seed)
        return _told(found, {found.longest: found.longest_s}, resident_bytes(os.getpid()) - before, slow)
    # (Made before there is a cluster: its loop does not turn while they are.)
    dear = [one for one in dear_requests() if given.only in one[0]] if given.what == "dear" else []
    growth, attacks = 0, list[ListenerAttack]()

    def attack(one: ListenerAttack) -> None:
        nonlocal growth
        attacks.append(one)
        if given.what == "dear":
            one.dear(dear)
        else:
            growth = one.fuzz(frames, given.inputs, given.seed)

    with tempfile.TemporaryDirectory() as root:
        held = attacked(Path(root), attack)
    return _told(attacks[0].findings, held.worst_s, growth, max(slow, slowness()))


def _told(found: Findings, worst_s: dict[str, float], growth: int, slow: float) -> int:
    said = f"{found.inputs} inputs: {dict(found.outcomes)}; memory {growth / 1e6:+.0f} MB; machine {slow:.1f}\n"
    for name, seconds in sorted(worst_s.items(), key=lambda one: -one[1])[:40]:
        said += f"{seconds * 1000:8.1f} ms{' TOO LONG' if seconds > LIMIT_S * slow else ''}  {name}\n"
    sys.stdout.write(said)
    return int(max(worst_s.values(), default=0.0) > LIMIT_S * slow or growth > GROWTH_BYTES_MAX)


if __name__ == "__main__":
    sys.exit(main())
