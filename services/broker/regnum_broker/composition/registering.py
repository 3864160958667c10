"""The broker's registration, the lives of its directory that go with it, and what ends them."""

from typing import Final

from regnum_broker.cluster.registration import Registrar
from regnum_broker.composition.parts import BrokerParts

LIFE_ENDS_TIMEOUT_S: Final = 30.0
"""How long a broker whose disk failed waits for the store to know it; nothing is appended meanwhile."""


def start_registering(parts: BrokerParts, registering: Registrar) -> None:
    """Register from now on, and begin lives."""
    supervisor, lives, storage = parts.supervisor, parts.lives, parts.storage

    async def end_life() -> None:
        if storage.directory.proof.is_void:
            await lives.end()

    supervisor.start("went back", parts.went_back.run())
    supervisor.start("registration", registering.run())
    supervisor.start("lives", lives.run())
    # Before all else: it takes the session with the store.
    supervisor.defer_first("life", end_life, timeout_s=LIFE_ENDS_TIMEOUT_S)
