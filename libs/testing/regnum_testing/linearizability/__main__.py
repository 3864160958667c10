"""Judge histories, make random ones, compare with another judge, and put a store to the test.

python -m regnum_testing.linearizability check FILE...
python -m regnum_testing.linearizability generate --seed 1 --count 1000 --broken-half DIR
python -m regnum_testing.linearizability compare --with COMMAND [FILE...]
python -m regnum_testing.linearizability campaign --coordination etcd --seconds 120 --seed 1 --history DIR

Without files, ``compare`` makes ``--count`` random histories, half of them broken. A judge is a command that is given
a file and ends with 0 (linearizable) or 1 (not). Exit status: 0 linearizable, or all verdicts equal; 1 not; 2 wrong
input.
"""

import argparse
import asyncio
import random
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from regnum_service.clock import SystemClock

from regnum_testing.linearizability.broken_history import broken_history
from regnum_testing.linearizability.campaign import CampaignFailedError, Plan, Result, run_campaign
from regnum_testing.linearizability.comparison import JudgeFailedError, compare
from regnum_testing.linearizability.history import WrongInputError, read_history, write_history
from regnum_testing.linearizability.nemesis import plan
from regnum_testing.linearizability.random_history import random_shape, right_history
from regnum_testing.linearizability.targets import TARGETS, make_target
from regnum_testing.linearizability.verdict import judge


def generate(directory: Path, *, seed: int, count: int, broken_half: bool) -> list[Path]:
    """Write random histories, one a file; every other one broken if ``broken_half``."""
    directory.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        history = right_history(chance, random_shape(chance))
        is_broken = broken_half and number % 2 == 1
        if is_broken:
            history = broken_history(chance, history)
        files.append(directory / f"{number:05d}-{'broken' if is_broken else 'right'}.jsonl")
        write_history(files[-1], history)
    return files


def _check(arguments: argparse.Namespace) -> int:
    verdict = judge(operation for file in arguments.files for operation in read_history(file))
    sys.stdout.write(f"{verdict}\n")
    return 0 if verdict.is_linearizable else 1


def _generate(arguments: argparse.Namespace) -> int:
    files = generate(arguments.directory, seed=arguments.seed, count=arguments.count, broken_half=arguments.broken_half)
    sys.stdout.write(f"{len(files)} histories in {arguments.directory}\n")
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    command = shlex.split(arguments.judge)
    if arguments.files:
        found = compare(arguments.files, command)
    else:
        with tempfile.TemporaryDirectory(prefix="regnum-histories-") as directory:
            files = generate(Path(directory), seed=arguments.seed, count=arguments.count, broken_half=True)
            found = compare(files, command)
    equal = found.linearizable + found.broken
    sys.stdout.write(f"{equal} of {found.total} equal: {found.linearizable} linearizable, {found.broken} not\n")
    for file in found.different:
        sys.stdout.write(f"different: {file}\n")
    return 1 if found.different else 0


def _campaign(arguments: argparse.Namespace) -> int:
    arguments.history.mkdir(parents=True, exist_ok=True)
    result = asyncio.run(_run_campaign(arguments))
    sys.stdout.write(f"{result}\n")
    return 0 if result.verdict.is_linearizable else 1


async def _run_campaign(arguments: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory(prefix="regnum-store-") as directory:
        target = make_target(arguments.coordination, Path(directory))
        try:
            await asyncio.to_thread(target.start)
            # More faults than there is time for.
            faults = plan(arguments.seed, 10 + round(arguments.seconds))
            planned = Plan(
                seed=arguments.seed,
                faults=faults,
                seconds=arguments.seconds,
                operation_timeout_s=arguments.operation_timeout_s,
                current_reads=not arguments.stale_reads,
            )
            return await run_campaign(target, arguments.history, planned, SystemClock())
        finally:
            await asyncio.to_thread(target.stop)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m regnum_testing.linearizability",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    check = commands.add_parser("check", help="judge the history in the files, put together")
    check.add_argument("files", nargs="+", type=Path)
    check.set_defaults(run=_check)

    making = commands.add_parser("generate", help="write random histories")
    making.add_argument("directory", type=Path)
    making.add_argument("--seed", type=int, default=1)
    making.add_argument("--count", type=int, default=1000)
    making.add_argument("--broken-half", action="store_true", help="break every other history")
    making.set_defaults(run=_generate)

    comparing = commands.add_parser("compare", help="our verdicts beside those of another judge")
    comparing.add_argument("files", nargs="*", type=Path)
    comparing.add_argument("--with", dest="judge", required=True, metavar="JUDGE", help="command of the other judge")
    comparing.add_argument("--seed", type=int, default=1)
    comparing.add_argument("--count", type=int, default=1000)
    comparing.set_defaults(run=_compare)

    campaign = commands.add_parser("campaign", help="clients and faults on a real store of three members")
    campaign.add_argument("--coordination", choices=sorted(TARGETS), default="etcd")
    campaign.add_argument("--seconds", type=float, default=120.0)
    campaign.add_argument("--seed", type=int, default=1)
    campaign.add_argument("--operation-timeout-s", type=float, default=1.5, help="longer: fewer unknown outcomes")
    campaign.add_argument(
        "--stale-reads",
        action="store_true",
        help="read what may be past: on ZooKeeper that is found out within a minute or so",
    )
    campaign.add_argument("--history", type=Path, required=True, metavar="DIR", help="where histories are left")
    campaign.set_defaults(run=_campaign)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except (WrongInputError, OSError, JudgeFailedError, CampaignFailedError) as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
