"""Settings of the election service."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import CLI_SUPPRESS
from regnum_model.bucket import DEFAULT_BURST_S, Limit
from regnum_model.configs import (
    DEFAULT_REPLICATION_FACTOR,
    DEFAULTS,
    INTER_BROKER_PROTOCOL,
    MAX_BROKER_EPOCH,
    MIN_INSYNC_REPLICAS,
    PER_BROKER_EPOCHS,
    VALUE_MAX,
)
from regnum_model.delegation_tokens import Lives
from regnum_service.access.tokens.settings import TokenSettings
from regnum_service.settings import AddressText
from regnum_service.tls.settings import ListenerSettings

from regnum_election.history.segments import Limits
from regnum_election.reassignment.agent import MOVING_MAX


class ElectionSettings(ListenerSettings, TokenSettings):
    """What an election process is told."""

    election_id: int = Field(ge=0, lt=2**31, description="Id of this election process; a space of its own.")
    client_listen: AddressText = Field(description="Where admin calls come in, host:port.")
    internal_listen: AddressText = Field(description="Where calls of brokers come in, host:port.")
    lifeline_listen: AddressText = Field(description="Where lifelines of brokers come in, host:port.")
    client_advertised: AddressText | None = Field(
        default=None, description="Where others reach client-listen, if not at that address."
    )
    internal_advertised: AddressText | None = Field(
        default=None, description="Where others reach internal-listen, if not at that address."
    )
    lifeline_advertised: AddressText | None = Field(
        default=None, description="Where others reach lifeline-listen, if not at that address."
    )
    min_insync_replicas: int = Field(
        default=DEFAULTS[MIN_INSYNC_REPLICAS],
        ge=1,
        le=VALUE_MAX,
        description="min.insync.replicas of the cluster, for a store that has no such setting yet.",
    )
    default_replication_factor: int = Field(
        default=DEFAULTS[DEFAULT_REPLICATION_FACTOR],
        ge=1,
        le=VALUE_MAX,
        description="default.replication.factor of the cluster, for a store that has no such setting yet.",
    )
    inter_broker_protocol_version: int = Field(
        default=MAX_BROKER_EPOCH,
        ge=PER_BROKER_EPOCHS,
        le=MAX_BROKER_EPOCH,
        description="inter.broker.protocol.version of the cluster, for a store that has no settings at all yet.",
    )
    leader_balance_interval_s: float = Field(
        default=300.0, gt=0.0, description="Seconds between two rounds that move leaders back to preferred replicas."
    )
    moving_partitions_max: int = Field(
        default=MOVING_MAX,
        ge=1,
        le=10_000,
        description="Partitions that are filled at other brokers at a time; others that are being reassigned wait.",
    )
    lifeline_detection: bool = Field(
        default=True,
        description="Whether lifelines may declare brokers and controllers dead; without, only sessions do.",
    )
    order_overdue_s: float = Field(
        default=10.0,
        gt=0.0,
        description="Seconds after which an order that a live broker has not acknowledged is an event and a metric.",
    )
    trouble_overdue_s: float = Field(
        default=30.0,
        gt=0.0,
        description="Seconds after which a partition without a leader, under min.insync.replicas or under-replicated "
        "is an event and a metric of its own.",
    )
    quota_stand_in_rate: float | None = Field(
        default=None,
        gt=0.0,
        description="Partitions that all clients together may create or delete in a second while no quota process "
        "answers; without, the highest rate of any quota.",
    )
    quota_stand_in_burst: float | None = Field(
        default=None,
        gt=0.0,
        description="Partitions that may be created or deleted at once meanwhile; without, eleven times the rate.",
    )

    event_log_bytes: int = Field(
        default=32 * 2**20,
        ge=2**20,
        description="Bytes of the event log that are kept in the run directory; the oldest events go first.",
    )
    event_log_events: int = Field(default=500_000, ge=1_000, description="Events that are kept there at most.")
    delegation_token_max_life_s: float = Field(
        default=7 * 86_400.0,
        ge=1.0,
        le=10 * 366 * 86_400.0,
        description="Seconds for which a delegation token lives in any case (Kafka: delegation.token.max.lifetime.ms).",
    )
    delegation_token_expiry_s: float = Field(
        default=86_400.0,
        ge=1.0,
        le=10 * 366 * 86_400.0,
        description="Seconds for which it lives without being renewed (Kafka: delegation.token.expiry.time.ms).",
    )
    failpoint_file: Path | None = Field(default=None, description=CLI_SUPPRESS)
    """For tests: where a failpoint may stand (see ``failpoints``). Nobody comes across it in ``--help``."""

    @property
    def token_lives(self) -> Lives:
        """For how long delegation tokens live."""
        return Lives(
            max_ms=round(1000 * self.delegation_token_max_life_s), renew_ms=round(1000 * self.delegation_token_expiry_s)
        )

    @property
    def event_limits(self) -> Limits:
        """How much of the event log is kept."""
        return Limits(bytes=self.event_log_bytes, events=self.event_log_events)

    @property
    def config_seeds(self) -> dict[str, int]:
        """Settings of the cluster, for a store that does not have them yet."""
        return {
            MIN_INSYNC_REPLICAS: self.min_insync_replicas,
            DEFAULT_REPLICATION_FACTOR: self.default_replication_factor,
            INTER_BROKER_PROTOCOL: self.inter_broker_protocol_version,
        }

    @property
    def quota_stand_in(self) -> Limit | None:
        """Rate and burst while no quota process answers; None takes the largest of any quota."""
        rate = self.quota_stand_in_rate
        if rate is None:
            return None
        burst = self.quota_stand_in_burst
        return Limit(rate=rate, burst=DEFAULT_BURST_S * rate if burst is None else burst)
