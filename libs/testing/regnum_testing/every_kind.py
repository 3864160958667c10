"""One process of each kind over a store in memory, all of them on the running event loop, with every listener real."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from regnum_broker.broker import Broker
from regnum_broker.settings import BrokerSettings
from regnum_coordination import open_store
from regnum_coordination.drivers.memory import MemoryServer, server_named
from regnum_coordination.port import Store
from regnum_election.service import ElectionService
from regnum_election.settings import ElectionSettings
from regnum_metadata.service import MetadataService
from regnum_metadata.settings import MetadataSettings
from regnum_model.nodes import Address
from regnum_quota.service import QuotaService
from regnum_quota.settings import QuotaSettings
from regnum_service.clock import SystemClock
from regnum_service.settings import ServiceSettings, load
from regnum_service.supervisor import Supervisor

from regnum_testing.ports import unused_port

KINDS: Mapping[str, type[ServiceSettings]] = {
    "broker": BrokerSettings,
    "election": ElectionSettings,
    "metadata": MetadataSettings,
    "quota": QuotaSettings,
}
"""Every kind of process, and what one is told."""


NOT_GRPC = frozenset({"metrics_listen", "health_listen", "kafka_listen"})
"""Settings of listeners that speak something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProcess:
    """One process of the cluster."""

    supervisor: Supervisor
    """Says whether it lives."""
    listeners: Mapping[str, Address]
    """Every address at which it was told to serve gRPC, by the name of the setting."""


class EveryKind:
    """A cluster of one broker, one election, one metadata and one quota process. Close it with ``close``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        """Where the broker keeps its logs."""
        self._store = f"memory://{root.name}"
        self.server: MemoryServer = server_named(root.name)
        self.processes: dict[str, RunningProcess] = {}
        self.kafka: Address = Address(host="127.0.0.1", port=unused_port())
        """Where the broker speaks Kafka's protocol."""

    async def start(self) -> None:
        """Start all of them."""
        chance, clock = random.Random(1), SystemClock()
        for kind, settings_class in KINDS.items():
            flags = {"coordination": self._store, f"{kind}-id": "1", "log-level": "error"}
            names = [name for name in settings_class.model_fields if name.endswith("_listen") and name not in NOT_GRPC]
            for name in names:
                flags[name.replace("_", "-")] = f"127.0.0.1:{unused_port()}"
            if kind == "broker":
                flags["data-dir"] = str(self.root / "broker")
                flags["kafka-listen"] = str(self.kafka)
                flags["auto-create-topics"] = "true"
            told = load(settings_class, [part for flag, value in flags.items() for part in (f"--{flag}", value)])
            supervisor = Supervisor(kind)
            match told:
                case BrokerSettings():
                    await Broker(told, supervisor=supervisor, open_session=self._open_session, clock=clock).start()
                case ElectionSettings():
                    await ElectionService(told, supervisor=supervisor, clock=clock, chance=chance).start()
                case MetadataSettings():
                    await MetadataService(told, supervisor=supervisor, clock=clock, chance=chance).start()
                case QuotaSettings():
                    await QuotaService(told, supervisor=supervisor, clock=clock, chance=chance).start()
            self.processes[kind] = RunningProcess(
                supervisor=supervisor, listeners={name: Address.parse(getattr(told, name)) for name in names}
            )

    def nodes(self) -> dict[str, bytes]:
        """Everything in the store."""
        tree = self.server.reading(current=True)
        found: dict[str, bytes] = {}
        folders = ["/"]
        while folders:
            path = folders.pop()
            node, children = tree.get(path), tree.children(path)
            if node is not None:
                found[path] = node.data
            if children is not None:
                folders += [f"{path.rstrip('/')}/{name}" for name in children.names]
        return found

    async def _open_session(self) -> Store:
        return await open_store(self._store)

    async def close(self) -> None:
        """Stop everything; the broker first, which hands over to the controller."""
        for process in self.processes.values():
            await process.supervisor.unwind()
        self.processes.clear()
