"""The cluster that is attacked: TLS, rights that are checked, and a topic each for the attackers and for the bystander.

admin       a super user
producer    READ and WRITE of BYSTANDER_TOPIC
app-N       READ and WRITE of SANDBOX, all partitions of which broker 1 leads
guest-N     a certificate, and no right

Each attack is made by an app or guest of its own, so that what one owes to a quota is no other's to wait for.
"""

import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import grpc
from regnum_client import DEFAULT, Admin, NewTopic, QuotaEntity, TlsFiles
from regnum_client.admin.acls.values import Operation
from regnum_local.certificates import ADMIN
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_model.nodes import Address
from regnum_model.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, RATE_KEY, REQUEST_PERCENTAGE
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles

from regnum_testing.guarded_cluster import SERVICES, allow, context_of, files_of, guarded_cluster

MIB: Final = 1024 * 1024
PRODUCER, APP, GUEST = "producer", "app", "guest"
"""Clients."""
ATTACKERS: Final = 20
"""Guests, and apps: more than attacks that one cluster is put to."""
BYSTANDER_TOPIC, SANDBOX, SECRET = "bystander", "sandbox", "secret"
"""Topics; nobody but admin may do anything with the last one."""
PARTITIONS: Final = 3
"""Of the first two."""
QUOTAS: Final[Mapping[str, float]] = {
    PRODUCER_BYTE_RATE: MIB,
    CONSUMER_BYTE_RATE: MIB,
    REQUEST_PERCENTAGE: 50.0,
    RATE_KEY: 5.0,
}
"""Of each user, the bystander included, where there are any."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster, and how its clients come in."""

    cluster: LocalCluster
    """Its processes."""
    has_quotas: bool
    """Whether ``QUOTAS`` are set for each user."""
    attacker: int = 0
    """Number of the guest and of the app that come in."""

    def attacked_by(self, attacker: int) -> "Target":
        """The same cluster, for the guest and the app of that number."""
        return replace(self, attacker=attacker)

    def files(self, client: str) -> TlsFiles:
        """What a client shows."""
        return files_of(self.cluster, _one_of(client, self.attacker) if client in (APP, GUEST) else client)

    def context(self, client: str) -> ssl.SSLContext:
        """The same for connections that are not gRPC's own."""
        context = context_of(self.files(client))
        context.set_alpn_protocols(["h2"])
        return context

    def channel(self, client: str, process: str) -> grpc.aio.Channel:
        """A connection of gRPC's own to the listener for clients."""
        return opener(WatchedFiles(self.files(client)))(self.address(process))

    def admin(self) -> Admin:
        """For what is asked and set beside the attacks."""
        return Admin(self.cluster.bootstrap, tls=self.files(ADMIN))

    def address(self, process: str, listener: str = "client") -> Address:
        """Of a process."""
        return next(row.addresses[listener] for row in self.cluster.status() if row.name == process)

    def pids(self) -> dict[str, int | None]:
        """Process ids of all services by name; None: it has ended."""
        return {row.name: row.pid for row in self.cluster.status() if row.role in SERVICES}

    def roles(self) -> dict[str, Role]:
        """What each of them is."""
        return {row.name: row.role for row in self.cluster.status() if row.role in SERVICES}


def _one_of(client: str, attacker: int) -> str:
    return f"{client}-{attacker}"


@contextlib.asynccontextmanager
async def attacked_cluster(folder: Path, *, quotas: bool) -> AsyncIterator[Target]:
    """Three brokers, one process of each other kind, topics, rules and quotas; all ended at the end."""
    guests, apps = ([_one_of(client, number) for number in range(ATTACKERS)] for client in (GUEST, APP))
    async with guarded_cluster(folder, PRODUCER, *guests, *apps, quotas=1) as cluster:
        target = Target(cluster, quotas)
        async with target.admin() as admin:
            turned = {number: [number % 3 + 1, (number + 1) % 3 + 1, (number + 2) % 3 + 1] for number in range(3)}
            await admin.create_topics(
                [
                    NewTopic(name=BYSTANDER_TOPIC, partitions=0, assignment=turned),
                    NewTopic(name=SANDBOX, partitions=0, assignment={number: [1, 2, 3] for number in turned}),
                    NewTopic(name=SECRET, partitions=1, replication_factor=3),
                ]
            )
            await admin.create_acls(
                [
                    allow(client, operation, topic)
                    for client, topic in ((PRODUCER, BYSTANDER_TOPIC), *((app, SANDBOX) for app in apps))
                    for operation in (Operation.READ, Operation.WRITE)
                ]
            )
            if quotas:
                await admin.alter_client_quota(QuotaEntity(user=DEFAULT), set=QUOTAS)
        yield target
