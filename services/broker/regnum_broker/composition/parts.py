"""What the parts of a broker are made of: its settings, what its process gives, and what all of them share."""

from dataclasses import dataclass

from regnum_model.ids import BrokerId
from regnum_service.access.acls.opening import AccessControl
from regnum_service.access.audit import AuditLog
from regnum_service.access.tokens.process import ProcessTokens
from regnum_service.clock import Clock
from regnum_service.failpoints.trigger import FailpointTrigger
from regnum_service.machine import Machine
from regnum_service.store_contact import StoreContact
from regnum_service.supervisor import Supervisor
from regnum_service.tls.settings import ProcessTls
from regnum_telemetry.metrics import Metrics

from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.lives.lives import Lives
from regnum_broker.cluster.lives.went_back import WentBack
from regnum_broker.cluster.sessions import Sessions
from regnum_broker.cluster.strays.logs import StrayLogs
from regnum_broker.configs.dynamic import DynamicConfigs
from regnum_broker.disk_room import DiskRooms
from regnum_broker.limits.limits import ClientLimits
from regnum_broker.replication.replicas import Replicas
from regnum_broker.replication.sessions.fresh_appends import FreshAppends
from regnum_broker.replication.throttle import ReplicationThrottle
from regnum_broker.retention.expiry_clock import ExpiryClock
from regnum_broker.settings import BrokerSettings
from regnum_broker.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """There once the log directory is open; whoever makes a part hands on to it what it needs, and no more."""

    id: BrokerId
    settings: BrokerSettings
    supervisor: Supervisor
    """Runs every task, and undoes what was started in reverse order."""
    clock: Clock
    machine: Machine
    """What the process runs on."""
    expiry: ExpiryClock
    """What time it is for whoever deletes or forgets by it."""
    metrics: Metrics
    """Of the process."""
    sessions: Sessions
    """With the store."""
    contact: StoreContact
    """Whether the store answers."""
    fence: Fence
    """Which registration this broker has, and which controller it believes."""
    went_back: WentBack
    """Whether the store did."""
    lives: Lives
    """Of the log directory."""
    replicas: Replicas
    """Who leads and follows here."""
    storage: Storage
    """The logs."""
    disk: DiskRooms
    """Whether the disk takes records."""
    strays: StrayLogs
    """Those that nobody knows."""
    limits: ClientLimits
    """What clients may take."""
    tls: ProcessTls
    """How its listeners and its calls to others are protected."""
    access: AccessControl
    """What callers may do."""
    audit: AuditLog | None
    """Where changes and denials are taken down; None: nowhere."""
    configs: DynamicConfigs
    """Settings that change while it runs."""
    tokens: ProcessTokens
    """Delegation tokens that clients may show."""
    throttle: ReplicationThrottle
    """What replicas that move may take."""
    failpoints: FailpointTrigger | None
    """Steps at which a test has this broker wait or end; None: there are none."""
    fresh: FreshAppends
    """What was appended last, for followers that are caught up."""
