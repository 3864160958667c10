"""What processes a local cluster has, on which ports, and how each is started. Pure."""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

from regnum_model.nodes import Address
from regnum_service.errors import StartRefusedError

from regnum_local import zookeeper

HOST: Final = "127.0.0.1"
"""Plaintext listeners stay on this machine."""
VERSION: Final = 1
MAX_TXN_OPS: Final = 2_000
"""Operations that the embedded etcd takes in one transaction, and that the services may therefore send."""


REPLICATION_FACTOR_MAX: Final = 3
"""Default replication factor of a new cluster that has as many brokers."""


TRACES: Final = "traces"
"""Folder of the spans of all services, below the folder of the cluster."""


class Role(enum.Enum):
    """What a process is."""

    ETCD = "etcd"
    """The embedded coordination store, by default."""
    ZOOKEEPER = "zookeeper"
    """The embedded coordination store of those who choose it."""
    ELECTION = "election"
    """An election process."""
    METADATA = "metadata"
    """A metadata process."""
    QUOTA = "quota"
    """A quota process."""
    BROKER = "broker"
    """A broker."""


METRICS: Final = "metrics"
"""Name of the listener that Prometheus reads, over HTTP."""

KAFKA: Final = "kafka"
"""Name of the listener of brokers that speaks Kafka's protocol."""

NOT_GRPC: Final = frozenset({METRICS, KAFKA})
"""Listeners that speak something else. Members in folders of earlier releases may have no port for them."""

FOR_CLIENTS: Final = frozenset({"client", KAFKA})
"""Listeners that clients come to, of processes that are no store."""

PORT_NAMES: Final[Mapping[Role, tuple[str, ...]]] = {
    Role.ETCD: ("client", "peer"),
    Role.ZOOKEEPER: ("client",),
    Role.ELECTION: ("client", "internal", "lifeline", METRICS),
    Role.METADATA: ("client", "internal", METRICS),
    Role.QUOTA: ("internal", METRICS),
    Role.BROKER: ("client", "internal", METRICS, KAFKA),
}
"""Listeners of each role."""
CLUSTER_CA: Final = "cluster-ca.pem"
"""File of the authority that the certificates of processes are signed by, in the folder of certificates."""
CLIENT_CA: Final = "client-ca.pem"
"""The same for clients: with a certificate of theirs nobody gets in where processes talk to one another."""
STORE_PEER_CA: Final = "store-peer-ca.pem"
"""The same for members of the embedded store among themselves: at etcd's listener for peers the log of the store can be
written to, so that no certificate of a process may count there."""
STORE_ADMIN: Final = "store-admin"
"""Name of the certificate with which commands, and the launcher, connect to the embedded store."""


def store_peer(store: str) -> str:
    """Name of the certificate that a store's member shows its peers."""
    return f"{store}-peer"


PROCESSES: Final = "regnum"
"""The principal of every process of the cluster."""
MAPPING_RULES: Final = (
    rf"RULE:^CN=[^,\\]+,OU=Processes,O=Regnum$/{PROCESSES}/,RULE:^CN=([^,\\]+),OU=Clients,O=Regnum$/$1/,DEFAULT"
)
"""How the names in these certificates become principals: that of the processes, and those of clients as they are."""
CLIENT_MAPPING_RULES: Final = r"RULE:^CN=([^,\\]+),OU=Clients,O=Regnum$/$1/,DEFAULT"
"""The same at the listener for clients, without the rule of processes."""
ROLE_RULES: Final = r"RULE:^CN=(broker|election|metadata|quota)-[0-9]+,OU=Processes,O=Regnum$/$1/"
"""Which process a certificate stands for: each has one of its own, with its name."""
STORES: Final = (Role.ETCD, Role.ZOOKEEPER)
"""Roles that are a coordination store; a cluster has at most one embedded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process of the cluster."""

    role: Role
    """What it is."""
    id: int
    """Its id among those of its role, from 1."""
    ports: Mapping[str, int]
    """Port of each of its listeners, by name."""
    bind: str = HOST
    """Host of its listeners for clients; all others are on loopback."""

    @property
    def name(self) -> str:
        """How commands, logs and folders call it: ``etcd``, ``election-1``, ``broker-3``."""
        return self.role.value if self.role in STORES else f"{self.role.value}-{self.id}"

    def address(self, listener: str) -> Address:
        """Where a listener can be reached."""
        for_clients = self.role not in STORES and listener in FOR_CLIENTS
        return Address(host=self.bind if for_clients else HOST, port=self.ports[listener])

    @property
    def addresses(self) -> dict[str, Address]:
        """All listeners."""
        return {listener: self.address(listener) for listener in self.ports}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All processes of a cluster. Kept in its folder, so that it comes back as it was."""

    members: tuple[Member, ...]
    """In the order in which they are started: that of Role."""

    def of(self, role: Role) -> tuple[Member, ...]:
        """The members of one role."""
        return tuple(member for member in self.members if member.role is role)

    def get(self, name: str) -> Member | None:
        """The member of that name."""
        return next((member for member in self.members if member.name == name), None)

    @property
    def store(self) -> Member | None:
        """The embedded store; None when it runs elsewhere."""
        return next((member for member in self.members if member.role in STORES), None)

    @property
    def bind(self) -> str:
        """Host of the listeners for clients."""
        return next((member.bind for member in self.members if member.role not in STORES), HOST)

    @property
    def bootstrap(self) -> tuple[str, ...]:
        """``host:port`` where clients find the cluster."""
        return tuple(str(member.address("client")) for member in self.of(Role.BROKER))

    @property
    def kafka(self) -> tuple[str, ...]:
        """``host:port`` where clients of Kafka find the cluster."""
        return tuple(str(member.address(KAFKA)) for member in self.of(Role.BROKER))

    @property
    def ports(self) -> Iterator[int]:
        """Every port that is spoken for."""
        return (port for member in self.members for port in member.ports.values())

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        members = [
            {"role": member.role.value, "id": member.id, "ports": dict(member.ports)}
            | ({"bind": member.bind} if member.bind != HOST else {})
            for member in self.members
        ]
        return {"version": VERSION, "members": members}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From the file; raises KeyError, TypeError or ValueError."""
        if value["version"] != VERSION:
            raise ValueError(f"version {value['version']} is not {VERSION}")
        members = []
        for item in value["members"]:
            role = Role(item["role"])
            # Folders of earlier releases name no port for some: ``grow`` chooses one.
            named = [name for name in PORT_NAMES[role] if name not in NOT_GRPC or name in item["ports"]]
            ports = {listener: int(item["ports"][listener]) for listener in named}
            members.append(Member(role=role, id=int(item["id"]), ports=ports, bind=str(item.get("bind", HOST))))
        return cls(members=tuple(members))


EMPTY: Final = Plan(members=())


def grow(
    plan: Plan,
    *,
    brokers: int,
    elections: int,
    metadata: int = 0,
    quotas: int = 0,
    store: Role | None,
    is_free: Callable[[int], bool],
    choose: Callable[[Sequence[int]], int],
    port_base: int | None = None,
    bind: str | None = None,
) -> Plan:
    """The plan with at least so many members, whose ports are free.

    Ports stay as they were unless another process has taken one; ``choose`` gives a port that is none of those listed.
    With ``port_base`` clients find broker 1 at that port, broker 2 at the next, and so on; StartRefusedError says that
    one of these is not free. ``bind``: see ``Member``; None: as it was, loopback in a new plan. ``store`` is the
    embedded store, None for one that runs elsewhere. A cluster never loses members here: a broker that is left out
    would take its replicas with it.
    """
    wanted = {
        Role.ETCD: 1 if store is Role.ETCD else 0,
        Role.ZOOKEEPER: 1 if store is Role.ZOOKEEPER else 0,
        Role.ELECTION: max(elections, len(plan.of(Role.ELECTION))),
        Role.METADATA: max(metadata, len(plan.of(Role.METADATA))),
        Role.QUOTA: max(quotas, len(plan.of(Role.QUOTA))),
        Role.BROKER: max(brokers, len(plan.of(Role.BROKER))),
    }
    reserved = range(port_base, port_base + wanted[Role.BROKER]) if port_base is not None else range(0)
    taken = [*plan.ports, *reserved]

    def port_of(role: Role, number: int, listener: str, before: int | None) -> int:
        if reserved and role is Role.BROKER and listener == "client":
            if not is_free(port := reserved[number - 1]):
                raise StartRefusedError(
                    f"port {port} of broker-{number} is taken: free it, or name another --port-base"
                )
            return port
        if before is not None and before not in reserved and is_free(before):
            return before
        port = choose(taken)
        taken.append(port)
        return port

    host = bind or plan.bind
    members: list[Member] = []
    for role, count in wanted.items():
        known = {member.id: member for member in plan.of(role)}
        for number in range(1, count + 1):
            before = known[number].ports if number in known else {}
            ports = {name: port_of(role, number, name, before.get(name)) for name in PORT_NAMES[role]}
            members.append(Member(role=role, id=number, ports=ports, bind=HOST if role in STORES else host))
    return Plan(members=tuple(members))


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a process is started with, besides what its role says."""

    python: str
    """The interpreter."""
    store: Sequence[str]
    """How the embedded store's program is called; not used when the store is elsewhere."""
    data_dir: Path
    """Folder of the cluster."""
    coordination: str
    """URL of the store, as this process is told it."""
    replication_factor: int = REPLICATION_FACTOR_MAX
    """Default replication factor of a cluster that is new."""
    extra: Mapping[Role, Sequence[str]]
    """Further flags for the services of a role."""
    certificates: Path | None = None
    """Folder of what ``certificates.make`` made; None: everything speaks plaintext."""


def store_url(plan: Plan, certificates: Path | None = None, *, shows: str = STORE_ADMIN) -> str:
    """URL of the embedded store.

    Args:
        plan: the cluster.
        certificates: folder of the certificates; None: the store speaks plaintext.
        shows: whose certificate is shown to the store.
    """
    store = plan.store
    if store is None:
        raise ValueError("the store of this cluster runs elsewhere; its URL is not in the plan")
    options = {"max_txn_ops": str(MAX_TXN_OPS)} if store.role is Role.ETCD else {}
    if certificates is not None:
        options |= {"ca": str(certificates / CLUSTER_CA), "cert": str(certificates / f"{shows}.pem")}
        options |= {"key": str(certificates / f"{shows}.key")}
    query = f"?{urlencode(options, safe='/')}" if options else ""
    return f"{store.role.value}://{store.address('client')}{query}"


def command(member: Member, launch: Launch) -> list[str]:
    """Command line of a member."""
    home = str(launch.data_dir / member.name)
    extra = launch.extra.get(member.role, ())
    match member.role:
        case Role.ETCD:
            return [*launch.store, *_etcd_flags(member, home, launch.certificates), *extra]
        case Role.ZOOKEEPER:
            return [*launch.store, str(zookeeper.configuration_path(launch.data_dir / member.name)), *extra]
        case Role.ELECTION:
            flags = ["--election-id", str(member.id), "--run-dir", home]
            flags += ["--default-replication-factor", str(launch.replication_factor)]
        case Role.METADATA:
            flags = ["--metadata-id", str(member.id), "--run-dir", home]
        case Role.QUOTA:
            flags = ["--quota-id", str(member.id), "--run-dir", home]
        case Role.BROKER:
            # A cluster of one machine is stopped as a whole: nobody would come back for whom to wait.
            flags = ["--broker-id", str(member.id), "--data-dir", home, "--termination-grace-s", "0"]
    flags += ["--traces-dir", str(launch.data_dir / TRACES)]
    if launch.certificates is not None:
        flags += _tls_flags(member, launch.certificates)
    listens = [part for name in PORT_NAMES[member.role] for part in (f"--{name}-listen", str(member.address(name)))]
    # -P: a folder named like a package, where the command happens to be given, must not be imported.
    module = f"regnum_{member.role.value}"
    return [launch.python, "-P", "-m", module, *flags, "--coordination", launch.coordination, *listens, *extra]


def _tls_flags(member: Member, folder: Path) -> list[str]:
    shown = ("certificate", folder / f"{member.name}.pem"), ("key", folder / f"{member.name}.key")
    flags = {f"internal-tls-{name}": str(path) for name, path in (*shown, ("ca", folder / CLUSTER_CA))}
    if "client" in PORT_NAMES[member.role]:
        flags |= {f"client-tls-{name}": str(path) for name, path in (*shown, ("ca", folder / CLIENT_CA))}
        flags["client-tls-client-auth"] = "required"
        flags["client-tls-principal-mapping-rules"] = CLIENT_MAPPING_RULES
    # That of all listeners is for releases that know no other.
    flags["tls-principal-mapping-rules"] = MAPPING_RULES
    flags["process-role-mapping-rules"] = ROLE_RULES
    flags["internal-super-users"] = f"User:{PROCESSES}"
    return [part for name, value in flags.items() for part in (f"--{name}", value)]


def _etcd_flags(member: Member, home: str, certificates: Path | None) -> list[str]:
    scheme = "http" if certificates is None else "https"
    client, peer = f"{scheme}://{member.address('client')}", f"{scheme}://{member.address('peer')}"
    # Writes are synced to disk as etcd does by default: what the cluster remembers survives a loss of power.
    return [
        *("--name", "regnum"),
        *("--data-dir", home),
        *("--listen-client-urls", client),
        *("--advertise-client-urls", client),
        *("--listen-peer-urls", peer),
        *("--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"regnum={peer}"),
        # etcd 3.5.0 to 3.5.2 can lose committed transactions when killed under load; this finds it out at start.
        "--experimental-initial-corrupt-check",
        *("--max-txn-ops", str(MAX_TXN_OPS)),
        *("--auto-compaction-mode", "revision"),
        *("--auto-compaction-retention", "100000"),
        # Alone it waits for nobody's heartbeat: a short election time-out only makes it start sooner.
        *("--heartbeat-interval", "50"),
        *("--election-timeout", "500"),
        *("--log-level", "warn"),
        *(() if certificates is None else _etcd_tls_flags(member, certificates)),
    ]


def _etcd_tls_flags(member: Member, folder: Path) -> list[str]:
    """Clients show certificates of processes. Peers there are none; etcd 3.5 answers clients at their listener, too."""
    peer = store_peer(member.name)
    return [
        *("--cert-file", str(folder / f"{member.name}.pem"), "--key-file", str(folder / f"{member.name}.key")),
        *("--trusted-ca-file", str(folder / CLUSTER_CA), "--client-cert-auth"),
        *("--peer-cert-file", str(folder / f"{peer}.pem"), "--peer-key-file", str(folder / f"{peer}.key")),
        *("--peer-trusted-ca-file", str(folder / STORE_PEER_CA), "--peer-client-cert-auth"),
    ]
