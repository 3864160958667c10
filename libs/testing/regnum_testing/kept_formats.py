"""Nodes and files as this release writes them, for the tests of later ones: a step of each release (docs/releasing.md).

``python -m regnum_testing.kept_formats tests/unit/formats/vX.Y.Z`` starts a cluster of one broker, changes something of
each kind, and leaves ``nodes.json`` (path to content) and ``cluster.tar.gz`` (the folder after an orderly stop, without
store and logs). A folder that is there is a release's, and is never written again.
"""

import argparse
import asyncio
import json
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from regnum_client import Consumer, Producer
from regnum_coordination import open_store
from regnum_coordination.port import Store
from regnum_local.cluster import LOGS, LocalCluster
from regnum_local.plan import Role

RECORDS: Final = 400
"""Written to two partitions of ``orders``, and read by the group ``readers``."""
SEGMENT_MS: Final = 1_000
CHANGES: Final = (
    f"topics create orders --partitions 2 --replication-factor 1 -c segment.ms={SEGMENT_MS}",
    "topics create gone --partitions 1 --replication-factor 1",
    "topics add-partitions orders --count 1",
    "topics remove-partitions orders --count 1 --yes",
    "topics delete gone --yes",
    "configs alter --cluster --set max.message.bytes=2000000",
    "configs alter --broker 1 --set group.max.size=100",
    "quotas set --user alice --rate 5",
    "acls add --allow User:alice --operation READ --topic orders",
)
"""Command lines behind ``regnum``, each of which leaves another kind of node."""


async def nodes(store: Store, path: str = "/") -> AsyncIterator[tuple[str, str]]:
    """All nodes below a path, by their paths."""
    for name in sorted((await store.children(path, current=True)).names):
        below = f"{path.rstrip('/')}/{name}"
        yield below, (await store.get(below, current=True)).data.decode()
        async for found in nodes(store, below):
            yield found


async def _regnum(line: str, bootstrap: str) -> None:
    words = (*line.split(), "--bootstrap", bootstrap)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "import sys; from regnum_client.command import main; sys.exit(main())", *words),
        stdout=asyncio.subprocess.DEVNULL,
    )
    if await process.wait():
        raise SystemExit(f"regnum {line} ended with status {process.returncode}")


async def _written(cluster: LocalCluster) -> None:
    """Records over several segments, and a group that has read them."""
    async with Producer(cluster.bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send("orders", b"record %d" % number, partition=number % 2)
            if number % (RECORDS // 4) == 0:
                await producer.flush()
                await asyncio.sleep(1.2 * SEGMENT_MS / 1000)
    async with Consumer(cluster.bootstrap, topics=["orders"], group_id="readers") as consumer:
        for _ in range(RECORDS):
            await consumer.getone()
        await consumer.commit()


async def keep(into: Path) -> None:
    """Fill the folder."""
    with tempfile.TemporaryDirectory() as work:
        at_once = {Role.BROKER: ("--group-initial-rebalance-delay-ms", "0", "--offsets-topic-partitions", "1")}
        folder = Path(work) / "cluster"
        async with LocalCluster(folder, brokers=1, elections=1, metadata=1, quotas=1, extra=at_once) as cluster:
            for line in CHANGES:
                await _regnum(line, cluster.bootstrap[0])
            await _written(cluster)
            store = await open_store(cluster.coordination)
            found = {path: content async for path, content in nodes(store)}
            await store.close()
        _write(into, found, folder)


def _write(into: Path, found: Mapping[str, str], folder: Path) -> None:
    into.mkdir(parents=True)
    (into / "nodes.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    left_out = {LOGS, "etcd", "traces"}
    with tarfile.open(into / "cluster.tar.gz", "w:gz") as files:
        for path in sorted(folder.rglob("*")):
            if left_out.isdisjoint(path.relative_to(folder).parts):
                files.add(path, arcname=str(path.relative_to(folder.parent)), recursive=False, filter=_unowned)


def _unowned(one: tarfile.TarInfo) -> tarfile.TarInfo:
    one.uid = one.gid = 0
    one.uname = one.gname = ""
    return one


def main(given: Sequence[str] | None = None) -> int:
    """Run it; returns the exit status. ``given``: arguments; None: those of the process."""
    parser = argparse.ArgumentParser(prog="python -m regnum_testing.kept_formats", description=__doc__)
    parser.add_argument("folder", type=Path, help="tests/unit/formats/vX.Y.Z")
    into: Path = parser.parse_args(given).folder
    if into.exists():
        sys.stderr.write(f"{into} is there already: what a release left is never written again\n")
        return 1
    asyncio.run(keep(into))
    return 0


if __name__ == "__main__":
    sys.exit(main())
