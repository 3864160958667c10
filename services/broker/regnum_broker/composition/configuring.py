"""Settings that change while the broker runs, handed to those of its parts that are there from the beginning."""

from regnum_model.broker_configs import (
    CONNECTION_QUEUED_MAX_BYTES,
    FOLLOWER_THROTTLE_RATE,
    LEADER_THROTTLE_RATE,
    QUEUED_MAX_REQUEST_BYTES,
)
from regnum_model.shares import Shares

from regnum_broker.composition.parts import BrokerParts
from regnum_broker.configs.watch import follow_configs
from regnum_broker.limits.quota_watch import follow_quotas


def follow_store(parts: BrokerParts) -> None:
    """Follow quotas and the settings of this broker from now on; ``parts.configs.on`` names who acts by which."""
    configs, held, throttle = parts.configs, parts.limits.held, parts.throttle

    def share(_: int) -> None:
        held.share(
            Shares(
                total_max=configs.value(QUEUED_MAX_REQUEST_BYTES),
                connection_max=configs.value(CONNECTION_QUEUED_MAX_BYTES),
            )
        )

    def slow_down(_: int) -> None:
        # The cluster's come with orders, together with what is to be moved.
        own = configs.stored.own
        throttle.set_own(leader=own.get(LEADER_THROTTLE_RATE), follower=own.get(FOLLOWER_THROTTLE_RATE))

    for key in (QUEUED_MAX_REQUEST_BYTES, CONNECTION_QUEUED_MAX_BYTES):
        configs.on(key, share)
    for key in (LEADER_THROTTLE_RATE, FOLLOWER_THROTTLE_RATE):
        configs.on(key, slow_down)
    take_up = parts.limits.quotas.take_up
    parts.supervisor.start("client quotas", follow_quotas(parts.sessions.wait_store, take_up, parts.clock))
    parts.supervisor.start("settings", follow_configs(parts.id, parts.sessions.wait_store, configs, parts.clock))
