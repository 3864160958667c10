"""Ways in which nothing can be written or read, and what each part says: tried on a cluster, and shown on a page.

python -m regnum_testing.health_ways            exit 1 when docs/operations/no_writes.md says something else
python -m regnum_testing.health_ways --write    write it
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "operations" / "no_writes.md"

SAID_WITHIN_S: Final = 10.0
"""Whatever the way, it is said by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One of them. What is said is a piece of the text; empty: nothing is said there."""

    name: str
    """For the test."""
    what: str
    """What has happened, for people."""
    status: str = ""
    """In a problem of `regnum status`, which then ends with 5; empty: it stays green."""
    event: str = ""
    """Kind of an event in the event log, and after a colon a piece of its detail."""
    alert: str = ""
    """An alert whose expression is true."""
    topic: str = "t"
    """What is written to."""
    partition: int = 0
    client: str = ""
    """In the error of a producer, or of the call that the way is about; empty: writes go on."""


OF_THE_CLUSTER: Final = (
    Way(
        name="full-leader",
        what="the disk of a leader is full",
        status="appends no records: the disk of log directory",
        event="trouble-overdue: not-writable",
        alert="RegnumPartitionsNotWritable",
        client="broker 1: writing",
    ),
    Way(
        name="full-followers",
        what="the disks of so many followers are full that fewer than `min.insync.replicas` store anything",
        status="under min.insync.replicas",
        event="isr-changed",
        alert="RegnumDiskTakesNoRecords",
        client="stores nothing: the disk of log directory",
    ),
    Way(
        name="full-everywhere",
        what="the disks of all brokers are full",
        status="partitions are not writable, though they are led",
        event="trouble-overdue: not-writable",
        alert="RegnumDiskTakesNoRecords",
        client="the disk is full",
    ),
    Way(
        name="hanging-disk",
        what="the disk of a leader answers no more; after `--disk-timeout-s` the broker ends, and another one leads",
        status="has not answered for",
        event="trouble-overdue: not-writable",
        alert="RegnumPartitionsNotWritable",
        client="broker 1 has not appended the records in time",
    ),
    Way(
        name="failed-disks",
        what="the disks of two of three brokers fail (EIO, a file system that has become read-only): they end",
        status="brokers that have replicas are away: 2, 3",
        event="broker-gone|broker-fenced",
        alert="RegnumPartitionsUnderMinIsr",
        client="1 of 2 needed replicas are in sync",
    ),
    Way(
        name="under-min-isr",
        what="two of three brokers are gone: fewer than `min.insync.replicas` are in sync",
        status="under min.insync.replicas",
        event="broker-gone|broker-fenced",
        alert="RegnumPartitionsUnderMinIsr",
        client="1 of 2 needed replicas are in sync",
    ),
    Way(
        name="no-leader",
        what="the only broker with a copy is gone, and no other one may lead",
        status="1 partitions are without a leader",
        event="partition-offline",
        alert="RegnumPartitionsWithoutLeader",
        topic="single",
        client="the partition has no leader",
    ),
    Way(
        name="paused-leader",
        what="the only broker with a copy hangs (SIGSTOP): it is fenced",
        status="1 partitions are without a leader",
        event="broker-fenced",
        alert="RegnumPartitionsWithoutLeader",
        topic="single",
        client="the partition has no leader",
    ),
    Way(
        name="store-without-space",
        what="the store has no space (etcd's alarm NOSPACE): what is led goes on, nothing is elected or changed",
        status="the coordination store takes no writes, so no leader is elected and nothing changed: etcd takes no",
        event="store-writes-refused: etcd takes no writes",
        alert="RegnumStoreTakesNoWrites",
        client="database space exceeded",
    ),
    Way(
        name="store-refuses-its-user",
        what="the store refuses its user (`etcdctl auth enable`): what is led goes on, nothing is elected or changed",
        status="the coordination store takes no writes, so no leader is elected and nothing changed: etcd asks for",
        event="store-writes-refused: etcd asks for a user",
        alert="RegnumStoreTakesNoWrites",
        client="etcd asks for a user",
    ),
    Way(
        name="slow-store",
        what="the store needs more than a second for a write: failovers take as long",
        status="the coordination store is slow: a write takes",
        alert="RegnumStoreSlow",
    ),
    Way(
        name="store-away",
        what="the store is away, or has lost its quorum: there is no controller; what is led goes on",
        status="say: no session with the coordination store|the coordination store does not answer|no write has been",
        alert="RegnumStoreAway",
    ),
    Way(
        name="no-controller",
        what="all election processes are gone: what is led goes on",
        status="no controller answers",
        alert="RegnumNoController",
    ),
    Way(
        name="paused-controllers",
        what="all election processes hang (SIGSTOP): what is led goes on",
        status="no controller answers",
        alert="RegnumNoController",
    ),
    Way(
        name="no-metadata-process",
        what="all metadata processes are gone: clients hear of no change of a leader",
        status="no metadata process is registered",
        alert="RegnumNoMetadataProcess",
    ),
    Way(
        name="damaged-topic-node",
        what="a topic node in the store is damaged: its partitions are led on until another controller comes",
        status="nodes in the store are damaged or were edited",
    ),
)
"""Of the cluster: some process that still runs says it, and an alert is true."""

OF_A_CLIENT: Final = (
    Way(name="quota", what="the client's own quota of changes is used up", client="THROTTLING_QUOTA_EXCEEDED"),
    Way(
        name="version",
        what="the client is newer, and makes a call that is not known",
        client="a release that does not know it",
    ),
    Way(name="rights", what="the client has no right to write", client="AUTHORIZATION_FAILED"),
    Way(
        name="certificate",
        what="the client's certificate is not one that the cluster takes",
        client="certificate",
    ),
)
"""Of one client: its error says so, and the cluster is well."""

HEAD: Final = f"""\
# When nothing can be written

Made from `regnum_testing.health_ways`, which `tests/integration/test_health_sweep.py` tries on a cluster: whatever the
way, each is said within {SAID_WITHIN_S:.0f} s, by the processes that still run. "or" stands between texts of which
one is there.

| what has happened | `regnum status` (exit status 5) | event | alert | the client hears |
|---|---|---|---|---|
"""

CLIENTS: Final = """
What is one client's own is said by its error alone, and `regnum status` stays green:

| what has happened | the client hears |
|---|---|
"""


def _cell(text: str, *, otherwise: str = "-") -> str:
    """Pieces of text, of which one is there."""
    return " or ".join(f"`{one}`" for one in text.split("|")) if text else otherwise


def page() -> str:
    """The page, as its file has it."""
    rows = [
        (one.what, _cell(one.status), _cell(one.event), _cell(one.alert), _cell(one.client, otherwise="writes go on"))
        for one in OF_THE_CLUSTER
    ]
    own = [(one.what, _cell(one.client)) for one in OF_A_CLIENT]
    return HEAD + _table(rows) + CLIENTS + _table(own)


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the page, or write it; returns the exit status."""
    if "--write" in (sys.argv[1:] if arguments is None else arguments):
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else 1


if __name__ == "__main__":
    sys.exit(main())
