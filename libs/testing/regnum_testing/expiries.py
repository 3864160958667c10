"""Sessions of a whole cluster ended from outside, one after the other, under load.

Goals: whoever lost its session is back with a new one within a session time-out and two seconds; afterwards there is
exactly one controller, every broker is registered, and no acknowledged record is lost.

Algorithm: choose a victim (the controller, a broker, any other process that holds a session) at random, read the owner
of its ephemeral node, end that session in the store, wait until the node stands again with another owner; the next one
follows at once. In the end all sessions are ended together. The processes learn of it as of any expiry: they did
nothing wrong and were told nothing.

``python -m regnum_testing.expiries --coordination zookeeper --count 50`` is the long form, for a person.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from grpc.aio import AioRpcError
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_coordination import open_store
from regnum_coordination.errors import NoNode
from regnum_coordination.port import Store
from regnum_local.cluster import LocalCluster
from regnum_local.demo.verdict import Verdict
from regnum_local.plan import STORES, Role
from regnum_model.nodes import Address
from regnum_model.paths import BROKER_IDS, CONTROLLER, ELECTION_IDS, METADATA_IDS
from regnum_model.quotas import QUOTA_ACTIVE, QUOTA_IDS
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error

from regnum_testing.session_ends import end_session
from regnum_testing.under_load import LoadedCluster, under_load
from regnum_testing.waiting import eventually

SESSION_TIMEOUT_S: Final = 20.0
"""Outlasts a process that gets no processor for some seconds: only sessions that are ended from outside are to end."""
BACK_WITHIN_S: Final = SESSION_TIMEOUT_S + 2.0
"""Seconds from the end of a session until its owner must be there again."""
CLOCK: Final = SystemClock()
FOLDERS: Final = {
    BROKER_IDS: Role.BROKER,
    ELECTION_IDS: Role.ELECTION,
    METADATA_IDS: Role.METADATA,
    QUOTA_IDS: Role.QUOTA,
}
"""Where processes have their ephemeral nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """One session that was ended."""

    path: str
    """Ephemeral node of its owner."""
    was_controller: bool
    """Whether the owner was the controller."""
    back_s: float
    """Seconds until the owner, and a controller, were there with another session."""


def make_cluster(data_dir: Path, coordination: str) -> LocalCluster:
    """A cluster of usual size."""
    session = ("--session-timeout-s", f"{SESSION_TIMEOUT_S:g}")
    services = [role for role in Role if role not in STORES]
    return LocalCluster(
        data_dir,
        brokers=3,
        elections=3,
        metadata=2,
        quotas=2,
        coordination=coordination,
        extra=dict.fromkeys(services, session),
    )


class Campaign:
    """Ends sessions in a row, and looks whether everybody is there."""

    def __init__(self, *, observer: Store, cluster: LocalCluster, rng: random.Random) -> None:
        """``observer`` is a session of its own, which nobody ends."""
        self._observer = observer
        self._cluster = cluster
        self._rng = rng
        self._ended: set[int] = set()

    async def expire_one(self) -> Expiry:
        """End the session of somebody and wait until it is back; AssertionError when that takes too long."""
        path = await self._victim()
        owner, controller = await self._owner(path), await self._owner(CONTROLLER)
        assert owner is not None, f"{path} has no owner"
        begin = CLOCK.monotonic()
        await end_session(self._cluster.coordination, owner)
        self._ended.add(owner)
        deadline_s = begin + BACK_WITHIN_S
        await self._until_it_stands(path, deadline_s)
        await self._until_it_stands(CONTROLLER, deadline_s)
        return Expiry(path=path, was_controller=owner == controller, back_s=CLOCK.monotonic() - begin)

    async def expire_all(self) -> None:
        """End every session there is at once; ``settled`` tells when they are back."""
        owners = [await self._owner(path) for path in self._paths()]
        known = {owner for owner in owners if owner is not None}
        await asyncio.gather(*(end_session(self._cluster.coordination, owner) for owner in known))
        self._ended |= known

    async def settled(self) -> None:
        """Wait until everybody is registered and one election process acts; AssertionError when that takes too long."""
        deadline_s = CLOCK.monotonic() + BACK_WITHIN_S
        for path in (*self._paths(), QUOTA_ACTIVE):
            await self._until_it_stands(path, deadline_s)
        await eventually(
            self._has_one_controller, within_s=deadline_s - CLOCK.monotonic(), what="one election process that acts"
        )

    def _paths(self) -> list[str]:
        return [f"{folder}/{member.id}" for folder, role in FOLDERS.items() for member in self._cluster.plan.of(role)]

    async def _victim(self) -> str:
        """One time in four whoever is the controller; otherwise any process."""
        if self._rng.random() < 0.25:
            node = json.loads((await self._observer.get(CONTROLLER, current=True)).data)
            return f"{ELECTION_IDS}/{node['brokerid']}"
        folder = self._rng.choice(tuple(FOLDERS))
        return f"{folder}/{self._rng.choice(self._cluster.plan.of(FOLDERS[folder])).id}"

    async def _owner(self, path: str) -> int | None:
        stat = await self._observer.exists(path, current=True)
        return None if stat is None else stat.ephemeral_owner

    async def _stands(self, path: str) -> bool:
        owner = await self._owner(path)
        return owner is not None and owner not in self._ended

    async def _until_it_stands(self, path: str, deadline_s: float) -> None:
        left_s = deadline_s - CLOCK.monotonic()
        await eventually(partial(self._stands, path), within_s=left_s, what=f"{path} with a new owner")

    async def _has_one_controller(self) -> bool:
        try:
            node = json.loads((await self._observer.get(CONTROLLER, current=True)).data)
        except NoNode:
            return False
        elections = self._cluster.plan.of(Role.ELECTION)
        acting = [member.id for member in elections if await acts_as_controller(member.address("client"))]
        assert len(acting) <= 1, f"election processes {acting} all take mutations"
        return acting == [node["brokerid"]]


async def acts_as_controller(address: Address) -> bool:
    """Whether an election process takes mutations: it checks one that it is not to carry out."""
    channel = open_channel(address)
    request = admin_pb2.CreateTopicsRequest(
        topics=[admin_pb2.NewTopic(name="checked-only", partitions=1)], validate_only=True, timeout_ms=2_000
    )
    try:
        answer = await admin_pb2_grpc.AdminServiceStub(channel).CreateTopics(request, timeout=3.0)
    except AioRpcError as error:
        refusal = from_rpc_error(error)
        if refusal.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER:
            return False
        raise refusal from error
    finally:
        await channel.close()
    return all(result.error_code != errors_pb2.ERROR_CODE_NOT_CONTROLLER for result in answer.results)


async def expire_in_a_row(
    cluster: LocalCluster,
    running: LoadedCluster,
    *,
    count: int,
    rng: random.Random,
    report: Callable[[Expiry], None] = lambda _expiry: None,
) -> tuple[list[Expiry], Verdict]:
    """End that many sessions of a loaded cluster; returns what happened once everybody is back, and the verdict."""
    observer = await open_store(cluster.coordination, session_timeout_s=60.0)
    try:
        campaign = Campaign(observer=observer, cluster=cluster, rng=rng)
        expiries = []
        for _ in range(count):
            expiries.append(await campaign.expire_one())
            report(expiries[-1])
        await campaign.settled()
        await campaign.expire_all()
        await campaign.settled()
    finally:
        await observer.close()
    await running.stage.all_in_sync(within_s=60.0)
    return expiries, await running.judged()


def summary(expiries: Sequence[Expiry], verdict: Verdict) -> str:
    """The figures of a campaign."""
    times = [expiry.back_s for expiry in expiries]
    reigns = sum(expiry.was_controller for expiry in expiries)
    return (
        f"{len(expiries)} expiries ({reigns} of the controller): back after median {statistics.median(times):.2f} s, "
        f"worst {max(times):.2f} s, allowed {BACK_WITHIN_S:g} s; one controller, everybody registered; "
        f"{verdict.acknowledged} records acknowledged, {len(verdict.lost)} lost, {len(verdict.duplicated)} doubled, "
        f"{len(verdict.reordered)} out of order, {len(verdict.moved)} moved"
    )


async def run(data_dir: Path, *, coordination: str, count: int, seed: int) -> tuple[list[Expiry], Verdict]:
    """The whole story: cluster, load, expiries."""
    rng = random.Random(seed)
    async with make_cluster(data_dir, coordination) as cluster, under_load(cluster, "expiries") as running:
        return await expire_in_a_row(cluster, running, count=count, rng=rng, report=_say)


def _say(expiry: Expiry) -> None:
    office = ", the controller" if expiry.was_controller else ""
    sys.stderr.write(f"{expiry.path}{office}: back after {expiry.back_s:.2f} s\n")


def main() -> int:
    """Run a campaign; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m regnum_testing.expiries", description=__doc__)
    parser.add_argument("--coordination", choices=[role.value for role in STORES], default="etcd")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    folder = Path(tempfile.mkdtemp(prefix="regnum-expiries-"))
    sys.stderr.write(f"seed {seed}, everything below {folder}\n")
    try:
        expiries, verdict = asyncio.run(
            run(folder, coordination=arguments.coordination, count=arguments.count, seed=seed)
        )
    except (AssertionError, RegnumError) as error:
        sys.stderr.write(f"failed: {error}\n")
        return 1
    sys.stdout.write(f"{arguments.coordination}: {summary(expiries, verdict)}\n")
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
