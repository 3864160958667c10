"""``python -m regnum_testing.fake_launcher DATA_DIR``: what `regnum up` does, with stand-ins for the services.

Prints ``ready`` once the profile is written, and reports on stderr. FAKE_MODES is a JSON object from member to mode
(see fake_member); FAKE_TETHERED=no lets the members outlive the launcher.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from regnum_local.cluster import LocalCluster
from regnum_local.lifecycle import ClusterView, UpOptions, run_up
from regnum_local.plan import Launch, Member, Role


def fake_command(modes: Mapping[str, str] | None = None) -> Callable[[Member, Launch], list[str]]:
    """Command lines that start stand-ins; ``modes`` by name of the member."""

    def command(member: Member, launch: Launch) -> list[str]:
        role = "etcd" if member.role is Role.ETCD else "service"
        mode = (modes or {}).get(member.name, "good")
        return [launch.python, "-m", "regnum_testing.fake_member", role, str(member.ports["client"]), mode]

    return command


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main() -> int:
    """Run until SIGTERM."""
    options = UpOptions(data_dir=Path(sys.argv[1]), brokers=2, elections=1, metadata=0, report=_report)
    modes = json.loads(os.environ.get("FAKE_MODES", "{}"))

    def make_cluster(options: UpOptions) -> LocalCluster:
        return LocalCluster(
            options.data_dir,
            brokers=options.brokers,
            elections=options.elections,
            metadata=options.metadata,
            report=options.report,
            make_command=fake_command(modes),
            tethered=os.environ.get("FAKE_TETHERED") != "no",
        )

    def ready(view: ClusterView) -> None:
        sys.stdout.write(" ".join(("ready", *view.bootstrap)) + "\n")
        sys.stdout.flush()

    return asyncio.run(run_up(options, ready=ready, make_cluster=make_cluster))


if __name__ == "__main__":
    sys.exit(main())
