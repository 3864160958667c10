"""A rolling upgrade from the last release to this one under load, back, and forth again; then the protocol is raised.

``python -m regnum_testing.upgrades --from v0.1.0 --store etcd``. Exit status 1 when a record was harmed, a call was
refused, or a step did not come about; the cluster's folder is kept then. What was found goes to stdout as JSON.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from regnum_service.errors import StartRefusedError

from regnum_testing.upgrades.judging import FAILURES, Upgrade
from regnum_testing.upgrades.release import ReleaseError, newest_tag, unpack


def main(given: Sequence[str] | None = None) -> int:
    """Run it; returns the exit status. ``given``: arguments; None: those of the process."""
    parser = argparse.ArgumentParser(prog="python -m regnum_testing.upgrades", description=__doc__)
    parser.add_argument("--from", dest="ref", default="", help="tag or commit to upgrade from; default: newest tag v*")
    parser.add_argument("--store", choices=["etcd", "zookeeper"], default="etcd")
    parser.add_argument("--tls", action="store_true", help="over TLS, with access rules")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the old release, with its libraries")
    parser.add_argument("--stall-max-s", type=float, default=0.0, help="longest stall that is no fault; 0: any")
    parser.add_argument(
        "--dir", type=Path, default=None, help="where the folder of the run is made; default: the machine's"
    )
    arguments = parser.parse_args(given)
    folder = Path(tempfile.mkdtemp(prefix="regnum-upgrade-", dir=arguments.dir))
    try:
        return asyncio.run(_run(folder, arguments))
    except ReleaseError as error:
        shutil.rmtree(folder)
        sys.stderr.write(f"{error}\n")
        return 2


async def _run(folder: Path, arguments: argparse.Namespace) -> int:
    (folder / "old").mkdir()
    old = await unpack(arguments.ref or await newest_tag(), folder / "old", python=arguments.python)

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    say(f"from {old.ref} ({old.commit[:8]}) on {arguments.store}{' with TLS and access rules' * arguments.tls}")
    for role, flags in old.unknown.items():
        if flags:
            say(f"{role.value} of {old.ref} does not know {', '.join(sorted(flags))}: left out")
    upgrade = Upgrade(
        folder / "cluster",
        old,
        coordination=arguments.store,
        python=arguments.python,
        tls=arguments.tls,
        say=say,
    )
    try:
        found = await upgrade.run()
    except (*FAILURES, StartRefusedError) as error:
        say(f"{error}; logs and data are kept below {folder}")
        return 1
    sys.stdout.write(f"{found.to_json()}\n")
    faults = list(found.faults)
    if 0 < arguments.stall_max_s < found.stall_s:
        faults.append(f"a partition was not acknowledged for {found.stall_s:.2f} s")
    if faults:
        say(f"{'; '.join(faults)}; logs and data are kept below {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
