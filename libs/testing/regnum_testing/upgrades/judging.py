"""A cluster that is upgraded, taken back and upgraded again while it is written to, and what became of the records."""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_client import (
    Admin,
    ConfigAlteration,
    ConfigResource,
    Producer,
    ProducerSettings,
    TlsFiles,
    TopicPartition,
)
from regnum_client.admin.acls.values import (
    AclBinding,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from regnum_coordination import open_store
from regnum_local.certificates import GUEST, client_files
from regnum_local.cluster import LaunchError, LocalCluster
from regnum_local.demo.replicas import folders, replica_logs
from regnum_local.demo.report import Narrator
from regnum_local.demo.scenes import SceneError, Stage
from regnum_local.demo.verdict import Verdict, judge, unequal_replicas
from regnum_local.demo.workload import Load, read_everything
from regnum_local.local_tls import CERTIFICATES
from regnum_local.plan import STORES, Launch, Member, Role, command
from regnum_model.features import PATH, Features
from regnum_model.nodes import Address
from regnum_model.protocols import KNOWN, PROTOCOL, ProtocolRange, ReleaseInfo
from regnum_model.quotas import QuotaProcessNode, quota_id_path
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles
from rich.console import Console

from regnum_testing.group_readers import CommitWatch, GroupReader, Processed
from regnum_testing.guarded_cluster import RIGHTS
from regnum_testing.upgrades.changes import PassedOnChanges, TopicChanges
from regnum_testing.upgrades.passes import order_of
from regnum_testing.upgrades.release import OtherRelease

TOPIC: Final = "upgraded"
GROUP: Final = "upgraded-readers"
CALM_S: Final = 1.0
"""Between two processes that are replaced: what goes wrong is then its own."""
SYNC_S: Final = 60.0
"""Within which every replica is in sync again."""
PASSED_ON_MIN: Final = 10
"""Changes that brokers have to have passed on: without them it is not known whether they do."""
WORDS_S: Final = 60.0
"""Within which a process that is refused must have ended."""


def _needed(type: ResourceType, name: str, *operations: Operation) -> list[AclBinding]:
    pattern = ResourcePattern(type=type, name=name, pattern=PatternType.LITERAL)
    return [
        AclBinding(
            pattern=pattern,
            entry=Entry(principal=f"User:{GUEST}", host="*", operation=operation, permission=Permission.ALLOW),
        )
        for operation in operations
    ]


NEEDED: Final = (
    *_needed(ResourceType.TOPIC, TOPIC, Operation.READ, Operation.WRITE),
    *_needed(ResourceType.GROUP, GROUP, Operation.READ),
)
"""Rights of the client that writes and reads."""


class UpgradeFailedError(Exception):
    """The upgrade could not be made as it is written down. The message says what did not happen."""


@dataclass(slots=True, kw_only=True)
class Found:
    """What became of it."""

    old: str
    """Release it began with: what was asked for and its commit."""
    store: str
    """Store that it ran on."""
    acknowledged: int = 0
    """Records."""
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    moved: int = 0
    invented: int = 0
    failed: list[str] = field(default_factory=list)
    """Records that the producer gave up."""
    unequal_replicas: tuple[str, ...] = ()
    """Partitions whose replicas are not the same bytes in the end."""
    stalls_s: dict[str, float] = field(default_factory=dict)
    """By process that was replaced, the longest time without an acknowledgement of any one partition."""
    group_missing: int = 0
    """Records that no member of the group processed."""
    group_repeated: int = 0
    """Processed more than once: what a member had not committed when its partitions went to another one."""
    commits_went_back: list[str] = field(default_factory=list)
    """Committed offsets below those seen before."""
    changes: int = 0
    """Changes of topics that succeeded."""
    passed_on: int = 0
    """Of those that brokers passed on."""
    refused_changes: list[str] = field(default_factory=list)
    """Those that did not."""
    words: dict[str, str] = field(default_factory=dict)
    """What was refused, and in which words."""
    releases: dict[str, str] = field(default_factory=dict)
    """What status said that every process is, after each pass."""

    @property
    def stall_s(self) -> float:
        """The longest of all."""
        return max(self.stalls_s.values(), default=0.0)

    @property
    def faults(self) -> tuple[str, ...]:
        """What must not be; empty: it went well."""
        counts = {name: getattr(self, name) for name in ("lost", "duplicated", "reordered", "moved", "invented")}
        counts["not processed by the group"] = self.group_missing
        found = [f"{count} records {name}" for name, count in counts.items() if count]
        if self.passed_on < PASSED_ON_MIN:
            found.append(f"{self.passed_on} changes were passed on by brokers, fewer than {PASSED_ON_MIN}")
        for name, lines in (
            ("record given up", self.failed),
            ("replicas differ", self.unequal_replicas),
            ("commit went back", self.commits_went_back),
            ("change of a topic refused", self.refused_changes),
        ):
            found.extend(f"{name}: {line}" for line in lines[:5])
        return tuple(found)

    def to_json(self) -> str:
        """For people and programs."""
        return json.dumps({**asdict(self), "stall_s": self.stall_s, "faults": self.faults}, indent=2)


class Upgrade:
    """One cluster and its passes."""

    def __init__(
        self,
        data_dir: Path,
        old: OtherRelease,
        *,
        coordination: str,
        python: str = sys.executable,
        tls: bool = False,
        partitions: int = 6,
        interval_s: float = 0.02,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """Only assigns.

        Args:
            data_dir: folder of the cluster.
            old: the release that it begins with.
            coordination: ``etcd`` or ``zookeeper``.
            python: interpreter of the old release's processes.
            tls: whether everything speaks TLS and rights are checked: the load comes from a client that has only those
                that it needs.
            partitions: of the topic that is written to.
            interval_s: between two records of a partition.
            say: gets a line for each step.
        """
        self._old: Final = old
        self._python: Final = python
        self._partitions: Final = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self._interval_s: Final = interval_s
        self._say: Final = say
        self._clock: Final = SystemClock()
        self._new: Final[set[str]] = set()
        """Members that run this release."""
        self.found: Final = Found(old=f"{old.ref} ({old.commit[:8]})", store=coordination)
        self._checks_rights: Final = tls
        extra: dict[Role, tuple[str, ...]] = dict.fromkeys(
            (role for role in Role if role not in STORES), RIGHTS if tls else ()
        )
        extra[Role.ELECTION] += ("--inter-broker-protocol-version", str(KNOWN.low))
        self.cluster: Final = LocalCluster(
            data_dir,
            brokers=3,
            elections=3,
            metadata=2,
            quotas=2,
            coordination=coordination,
            extra=extra,
            tls=tls,
            make_command=self._command,
            report=say,
        )

    def _command(self, member: Member, launch: Launch) -> list[str]:
        if member.name in self._new:
            return command(member, launch)
        return self._old.command(member, replace(launch, python=self._python))

    async def run(self) -> Found:
        """Forth, back, forth again, the protocol, and what is refused. Raises UpgradeFailedError, SceneError."""
        async with self.cluster, AsyncExitStack() as stack:
            bootstrap = self.cluster.bootstrap
            admin = await stack.enter_async_context(Admin(bootstrap, client_id="upgrade", tls=self.cluster.tls))
            if self._checks_rights:
                await admin.create_acls(NEEDED)
            await admin.create_topic(TOPIC, partitions=len(self._partitions), replication_factor=3)
            settings = ProducerSettings(linger_ms=2)
            tls = self._client
            producer = await stack.enter_async_context(Producer(bootstrap, settings=settings, tls=tls))
            load = Load(
                producer=producer,
                consumer=None,
                partitions=self._partitions,
                interval_s=self._interval_s,
                clock=self._clock,
            )
            stack.push_async_callback(load.abandon)
            narrator = Narrator(Console(stderr=True, quiet=True))
            stage = Stage(
                cluster=self.cluster, admin=admin, load=load, topics=[TOPIC], clock=self._clock, narrator=narrator
            )
            processed = Processed()
            readers = [GroupReader(bootstrap, TOPIC, GROUP, processed, tls=tls) for _ in range(2)]
            watch = CommitWatch(admin, GROUP)
            changes = TopicChanges(admin, self._clock)
            shown = self.cluster.tls
            dial = opener(None if shown is None else WatchedFiles(shown))
            passed_on = PassedOnChanges(bootstrap, dial, self._clock)
            for task in (*(reader.task for reader in readers), watch.task, passed_on.task):
                stack.push_async_callback(ended, task)
            stack.push_async_callback(changes.abandon)
            await load.start()
            changes.start()
            await stage.all_in_sync(within_s=SYNC_S)
            await stage.run_for(CALM_S)
            await self._pass(stage, admin, "up")
            await self._pass(stage, admin, "down")
            await self._pass(stage, admin, "up again")
            await self._raise(admin)
            await stage.run_for(CALM_S)
            await load.finish()
            await changes.stop()
            self._take(load, changes, passed_on)
            await self._judge_group(processed, readers, watch, load)
            logs = await read_everything(bootstrap, self._partitions, tls=tls)
            self._judge_records(load, logs)
            await self._refused(stage)
            names = await folders(admin, [TOPIC])
        # Stopped in order: the files are what the brokers left.
        self.found.unequal_replicas = unequal_replicas(replica_logs(self.cluster.data_dir), names)
        return self.found

    @property
    def _client(self) -> TlsFiles | None:
        """What the load shows; None: nothing."""
        files = self.cluster.tls
        if files is None:
            return None
        certificate, key = client_files(self.cluster.data_dir / CERTIFICATES, GUEST)
        return TlsFiles(ca=files.ca, certificate=certificate, key=key)

    async def _pass(self, stage: Stage, admin: Admin, name: str) -> None:
        down = name == "down"
        controller = (await stage.look()).controller
        for member in order_of(self.cluster.plan.members, controller=controller, down=down):
            self._say(f"{name}: {member.name}")
            (self._new.discard if down else self._new.add)(member.name)
            began_s = self._clock.monotonic()
            await self.cluster.restart(member.name)
            await self.cluster.wait_healthy(member.name)
            await stage.all_in_sync(within_s=SYNC_S)
            await stage.run_for(CALM_S)
            self.found.stalls_s[f"{name}: {member.name}"] = round(stage.usual_gap_s(began_s), 3)
        self.found.releases[name] = await self._releases(admin)

    async def _releases(self, admin: Admin) -> str:
        """What the controller says that everybody is; one of the first release does not say."""
        health = await admin.describe_health()
        said = sorted({f"{one.release}: {one.protocol_min} to {one.protocol_max}" for one in health.releases})
        return f"{len(health.releases)} processes, {', '.join(said)}, in force {health.inter_broker_protocol}"

    async def _raise(self, admin: Admin) -> None:
        """A process that does not speak it is in the way; without it the protocol is raised."""
        build = ReleaseInfo(release="0.0.0", protocols=ProtocolRange(low=KNOWN.low, high=KNOWN.low))
        node = QuotaProcessNode(id=99, incarnation="old", internal=Address(host="127.0.0.1", port=9), build=build)
        store = await open_store(self.cluster.coordination, session_timeout_s=6.0)
        try:
            await store.create(quota_id_path(99), node.encode(), ephemeral=True)
            refused = await _alter_protocol(admin, KNOWN.high)
            if refused is None or "quota 99" not in refused:
                raise UpgradeFailedError(f"the protocol was raised over a process that does not speak it ({refused})")
            self.found.words["raising over quota 99"] = refused
            await store.delete(quota_id_path(99), version=0)
        finally:
            await store.close()
        if refused := await _alter_protocol(admin, KNOWN.high):
            raise UpgradeFailedError(f"the protocol was not raised: {refused}")
        health = await admin.describe_health()
        if health.inter_broker_protocol != KNOWN.high:
            raise UpgradeFailedError(f"the protocol in force is {health.inter_broker_protocol} after it was raised")
        refused = await _alter_protocol(admin, KNOWN.low)
        if refused is None:
            raise UpgradeFailedError("the protocol was lowered")
        self.found.words["lowering"] = refused

    async def _refused(self, stage: Stage) -> None:
        """A later release has raised the protocol: processes of this one end with words. The last step of all."""
        later = KNOWN.high + 1
        store = await open_store(self.cluster.coordination, session_timeout_s=6.0)
        try:
            node = await store.get(PATH, current=True)
            await store.set(PATH, Features(inter_broker_protocol=later).encode(), version=node.stat.version)
            for name in ("broker-3", "election-3", "metadata-2", "quota-2"):
                await self.cluster.restart(name)
                await stage.until(f"{name} ends", lambda name=name: self._is_over(name), within_s=WORDS_S)  # type: ignore[misc]
                log = (self.cluster.data_dir / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace")
                said = re.findall(rf"the cluster speaks protocol {later} and [^\"'\n]*", log)
                if not said:
                    raise UpgradeFailedError(
                        f"{name} did not say that it does not speak protocol {later}: {log[-800:]}"
                    )
                self.found.words[f"{name} under protocol {later}"] = said[-1]
            node = await store.get(PATH, current=True)
            await store.set(PATH, Features(inter_broker_protocol=KNOWN.high).encode(), version=node.stat.version)
        finally:
            await store.close()
        await self.cluster.restart("broker-3")
        await self.cluster.wait_healthy("broker-3")
        await stage.all_in_sync(within_s=SYNC_S)

    async def _is_over(self, name: str) -> bool:
        return all(row.pid is None for row in self.cluster.status() if row.name == name)

    def _take(self, load: Load, changes: TopicChanges, passed_on: PassedOnChanges) -> None:
        for history in load.histories.values():
            self.found.failed.extend(history.failures)
        self.found.changes = changes.done
        self.found.passed_on = passed_on.done
        self.found.refused_changes = [*changes.refused, *passed_on.refused]

    async def _judge_group(
        self, processed: Processed, readers: Sequence[GroupReader], watch: CommitWatch, load: Load
    ) -> None:
        ends = {
            partition: max((one.offset for one in history.acknowledged), default=-1) + 1
            for partition, history in load.histories.items()
        }
        give_up_s = self._clock.monotonic() + SYNC_S
        while not processed.covers(ends) and self._clock.monotonic() < give_up_s:
            await self._clock.sleep(0.1)
        for reader in readers:
            await reader.stop()
        await watch.stop()
        self.found.group_missing = sum(
            len(set(range(end)) - processed.times.get(partition, {}).keys()) for partition, end in ends.items()
        )
        self.found.group_repeated = processed.repeated
        self.found.commits_went_back = watch.went_back

    def _judge_records(self, load: Load, logs: dict[TopicPartition, list[tuple[int, int]]]) -> None:
        total = Verdict()
        for partition, history in load.histories.items():
            total += judge(sent=history.sent, acknowledged=history.acknowledged, log=logs[partition])
        found = self.found
        found.acknowledged = total.acknowledged
        found.lost, found.duplicated = len(total.lost), len(total.duplicated)
        found.reordered, found.moved, found.invented = len(total.reordered), len(total.moved), len(total.invented)


async def _alter_protocol(admin: Admin, level: int) -> str | None:
    """Set the protocol; why it was refused, or None."""
    resource = ConfigResource()
    outcome = (await admin.alter_configs([ConfigAlteration(resource=resource, set={PROTOCOL: str(level)})]))[resource]
    if outcome is None:
        return None
    if outcome.code != errors_pb2.ERROR_CODE_INVALID_CONFIG:
        raise outcome
    return outcome.message


async def ended(task: "asyncio.Task[None]") -> None:
    """End a task that goes on until then. Raises what it had ended with before."""
    task.cancel()
    (error,) = await asyncio.gather(task, return_exceptions=True)
    if error is not None and not isinstance(error, asyncio.CancelledError):
        raise error


FAILURES: Final = (RegnumError, SceneError, LaunchError, UpgradeFailedError)
"""What a run may end with that is not a fault of this program."""
