"""Kills the leader while clients of Kafka send, one after another, and tells what became of their records.

python -m regnum_testing.kafka_kill [--count N] [--rate N] [--tls] [PROGRAM ...]

Each PROGRAM is a command line that takes four arguments more and does what ``regnum_testing.kafka_kill.producer``
does, which is the one that runs where none is given. Three brokers, a topic of three replicas; with ``--tls`` every
listener speaks TLS, and the programs are told in their environment which certificates to show.
"""

import argparse
import asyncio
import shlex
import sys
import tempfile
from pathlib import Path

from regnum_local.cluster import LocalCluster

from regnum_testing.kafka_kill.killing import Verdict, back, kill_in_the_middle


async def run(programs: list[str], count: int, rate: float, *, tls: bool) -> list[Verdict]:
    """One after another."""
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        async with LocalCluster(Path(folder), elections=1, metadata=1, tls=tls) as cluster:
            for number, program in enumerate(programs):
                topic = f"killed-{number}"
                verdict = await kill_in_the_middle(cluster, shlex.split(program), topic=topic, count=count, rate=rate)
                sys.stdout.write(f"{'clean' if verdict.clean else 'NOT CLEAN'}: {verdict}\n")
                sys.stdout.flush()
                verdicts.append(verdict)
                await back(cluster)
    return verdicts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="records of each")
    parser.add_argument("--rate", type=float, default=1_000, help="records a second")
    parser.add_argument("--tls", action="store_true", help="whether the cluster speaks TLS")
    parser.add_argument("programs", nargs="*", default=[f"{sys.executable} -m regnum_testing.kafka_kill.producer"])
    given = parser.parse_args()
    sys.exit(not all(one.clean for one in asyncio.run(run(given.programs, given.count, given.rate, tls=given.tls))))
