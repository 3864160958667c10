"""A cluster with TLS whose processes look at rights: what each client shows, and the rules that allow it something.

The processes and ``admin`` are super users; any other client may nothing before a rule says so.
"""

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from regnum_client import TlsFiles
from regnum_client.admin.acls.values import (
    AclBinding,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from regnum_local.certificates import ADMIN, client_files, make
from regnum_local.cluster import LocalCluster
from regnum_local.local_tls import CERTIFICATES
from regnum_local.plan import CLUSTER_CA, PROCESSES, Role

SERVICES: Final = (Role.ELECTION, Role.METADATA, Role.QUOTA, Role.BROKER)
"""Whose processes look at rights."""
RIGHTS: Final = ("--authorizer", "acl", "--super-users", f"User:{PROCESSES};User:{ADMIN}")
"""Flags of each of them: as releases before internal-super-users know it."""


@asynccontextmanager
async def guarded_cluster(
    folder: Path,
    *clients: str,
    brokers: int = 3,
    elections: int = 1,
    metadata: int = 1,
    quotas: int = 0,
    extra: Mapping[Role, Sequence[str]] | None = None,
) -> AsyncIterator[LocalCluster]:
    """Such a cluster, running; ended at the end.

    Args:
        folder: of the cluster, made here.
        clients: besides ``admin``, each with a certificate of its own.
        brokers: number of processes, as of the others.
        elections: their number.
        metadata: their number.
        quotas: their number.
        extra: further flags for the processes of a role.
    """
    make(folder / CERTIFICATES, [], clients=(ADMIN, *clients))
    flags = {role: (*RIGHTS, *(extra or {}).get(role, ())) for role in SERVICES}
    async with LocalCluster(
        folder, brokers=brokers, elections=elections, metadata=metadata, quotas=quotas, tls=True, extra=flags
    ) as cluster:
        yield cluster


def files_of(cluster: LocalCluster, client: str) -> TlsFiles:
    """What a client shows."""
    folder: Path = cluster.data_dir / CERTIFICATES
    certificate, key = client_files(folder, client)
    return TlsFiles(ca=folder / CLUSTER_CA, certificate=certificate, key=key)


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """The same for connections that are not gRPC's own."""
    assert files.certificate is not None, "a client has one"
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.certificate, files.key)
    return context


def allow(client: str, operation: Operation, topic: str, *, prefixed: bool = False) -> AclBinding:
    """The rule that a client may do something with a topic, or with those whose names begin so."""
    kind = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(
        pattern=ResourcePattern(type=ResourceType.TOPIC, name=topic, pattern=kind),
        entry=Entry(principal=f"User:{client}", host="*", operation=operation, permission=Permission.ALLOW),
    )
