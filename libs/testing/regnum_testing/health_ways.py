"""Ways in which nothing can be written or read, and what each part says: tried on a cluster, and shown on a page.

python -m regnum_testing.health_ways            exit 1 when docs/operations/no_writes.md says something else
python -m regnum_testing.health_ways --write    write it
"""

import enum
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "operations" / "no_writes.md"

SAID_WITHIN_S: Final = 10.0
"""Whatever the way, it is said by then."""


class Asked(enum.Enum):
    """What a client does."""

    WRITE = "writes"
    CREATE = "creates a topic"
    GROW = "adds partitions to the topic"


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
    asked: Asked = Asked.WRITE
    """What the client does that hears of it."""
    client: str = ""
    """In its error; empty: writes go on, and it hears nothing."""


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
        name="emptied-disk",
        what="the broker with the only copy comes back with an empty disk: it may not lead",
        status="1 partitions are without a leader",
        event="partition-offline",
        alert="RegnumPartitionsWithoutLeader",
        topic="single",
        client="the partition has no leader",
    ),
    Way(
        name="damaged-log",
        what="the only copy is damaged on its disk (a bit has changed): its broker cannot use it",
        status="broker 3 cannot use 1 of its replicas",
        event="replicas-offline",
        alert="RegnumReplicasOffline",
        topic="single",
        client="the partition has no leader",
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
        name="no-brokers",
        what="all brokers are gone",
        status="partitions are without a leader",
        event="partition-offline",
        alert="RegnumPartitionsWithoutLeader",
        client="no broker answers",
    ),
    Way(
        name="old-release",
        what="the broker with the only copy is of a release that does not speak the protocol in force: it is left out",
        status="broker 3 is refused: the cluster speaks protocol",
        event="broker-refused: the cluster speaks protocol",
        alert="RegnumBrokerRefused",
        topic="single",
        client="the partition has no leader",
    ),
    Way(
        name="shared-address",
        what="the broker with the only copy advertises an address that another one has: it is left out",
        status="broker 3 is refused: ",
        event="broker-refused",
        alert="RegnumBrokerRefused",
        topic="single",
        client="the partition has no leader",
    ),
    Way(
        name="store-without-space",
        what="the store has no space (etcd's alarm NOSPACE): what is led goes on, nothing is elected or changed",
        status="the coordination store takes no writes, so no leader is elected and nothing changed: etcd takes no",
        event="store-writes-refused: etcd takes no writes",
        alert="RegnumStoreTakesNoWrites",
        asked=Asked.CREATE,
        client="database space exceeded",
    ),
    Way(
        name="store-refuses-its-user",
        what="the store refuses its user (`etcdctl auth enable`): what is led goes on, nothing is elected or changed",
        status="the coordination store takes no writes, so no leader is elected and nothing changed: etcd asks for",
        event="store-writes-refused: etcd asks for a user",
        alert="RegnumStoreTakesNoWrites",
        asked=Asked.CREATE,
        client="etcd asks for a user",
    ),
    Way(
        name="store-went-back",
        what="the store was put back to an earlier copy, and a broker starts that has lived since: nothing is elected",
        status="the store went back to an earlier state",
        event="store-went-back",
        alert="RegnumStoreWentBack",
        topic="single",
        client="the partition has no leader|has no replica of",
    ),
    Way(
        name="store-away",
        what="the store is away, or has lost its quorum: there is no controller; what is led goes on",
        status="say: no session with the coordination store|the coordination store does not answer|no write has been",
        alert="RegnumStoreAway",
        asked=Asked.CREATE,
        client="controller|store",
    ),
    Way(
        name="no-controller",
        what="all election processes are gone: what is led goes on, nothing is elected or changed",
        status="no controller answers",
        alert="RegnumNoController",
        asked=Asked.CREATE,
        client="controller",
    ),
    Way(
        name="paused-controllers",
        what="all election processes hang (SIGSTOP): what is led goes on, nothing is elected or changed",
        status="no controller answers",
        alert="RegnumNoController",
        asked=Asked.CREATE,
        client="controller",
    ),
    Way(
        name="damaged-topic-node",
        what="a topic node in the store is damaged: its partitions are led on, and the topic cannot be changed",
        status="nodes in the store are damaged or were edited",
        event="topic-node-edited",
        alert="RegnumStoreNodesDamaged",
        asked=Asked.GROW,
        client="damaged",
    ),
    Way(
        name="expired-certificate",
        what="the certificate of a broker has expired: what is connected goes on, and nothing else connects",
        status="broker 1 turns connections away: the certificate of its client listener expired",
        event="connections-refused: the certificate of its client listener expired",
        alert="RegnumConnectionsRefused",
        topic="alone",
        client="certificate has expired",
    ),
)
"""Something cannot be written or read: a process that still runs says it, and an alert is true."""

GOES_ON: Final = (
    Way(
        name="slow-store",
        what="the store needs more than a second for a write: failovers take as long",
        status="the coordination store is slow: a write takes",
        alert="RegnumStoreSlow",
    ),
    Way(
        name="no-metadata-process",
        what="all metadata processes are gone: clients hear of no change of a leader",
        status="no metadata process is registered",
        alert="RegnumNoMetadataProcess",
    ),
    Way(
        name="no-quota-process",
        what="the only quota process is gone: the controller admits changes from a bucket of its own",
        status="not running: quota-1",
        alert="RegnumQuotaProcessMissing",
    ),
    Way(
        name="wrong-clock",
        what="the clock of a broker's machine is an hour ahead: nothing expires there, and its disk fills",
        status="the clock of broker 2 shows",
        alert="RegnumClockDiffers",
    ),
    Way(
        name="crowded",
        what="more connections are in use than `--client-max-connections`: the newest are closed, and come again",
        status="broker 1 turns connections away: more than",
        event="connections-refused: more than",
        alert="RegnumConnectionsRefused",
        topic="alone",
    ),
)
"""Writes go on, and somebody has to do something before they do not."""

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
    Way(
        name="connections",
        what="the client has as many connections and files open as it may (`ulimit -n`)",
        client="Too many open files",
    ),
)
"""Of one client: its error says so, and the cluster is well."""

HEAD: Final = f"""\
# When nothing can be written

Made from `regnum_testing.health_ways`, which `tests/integration/test_health_sweep*.py` try on clusters of processes:
whatever the way, each is said within {SAID_WITHIN_S:.0f} s, by the processes that still run. "or" stands between texts
of which one is there, and "-" where no process is left that could say it. The expression of the alert is true by then;
some wait for up to half a minute before they fire (`for` in `deploy/prometheus/alerts.yaml`).

| what has happened | `regnum status` (exit status 5) | event | alert | the client hears |
|---|---|---|---|---|
"""

WARNINGS: Final = """
Writes go on, until something else fails:

| what has happened | `regnum status` (exit status 5) | event | alert |
|---|---|---|---|
"""

CLIENTS: Final = """
What is one client's own is said by its error alone, and `regnum status` stays green:

| what has happened | the client hears |
|---|---|
"""


def _cell(text: str) -> str:
    """Pieces of text, of which one is there."""
    return " or ".join(f"`{one}`" for one in text.split("|")) if text else "-"


def _of_the_cluster(one: Way) -> tuple[str, ...]:
    return one.what, _cell(one.status), _cell(one.event), _cell(one.alert)


def _heard(one: Way) -> str:
    return _cell(one.client) if one.asked is Asked.WRITE else f"{_cell(one.client)} (who {one.asked.value})"


def page() -> str:
    """The page, as its file has it."""
    stopped = [(*_of_the_cluster(one), _heard(one)) for one in OF_THE_CLUSTER]
    own = [(one.what, _cell(one.client)) for one in OF_A_CLIENT]
    return HEAD + _table(stopped) + WARNINGS + _table(map(_of_the_cluster, GOES_ON)) + CLIENTS + _table(own)


def _table(rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the page, or write it; returns the exit status."""
    if "--write" in (sys.argv[1:] if arguments is None else arguments):
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else 1


if __name__ == "__main__":
    sys.exit(main())
