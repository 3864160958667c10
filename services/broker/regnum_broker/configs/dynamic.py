"""Settings that take effect while the broker runs: whoever acts by one hears of each change."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import structlog
from regnum.replication.v1 import control_pb2
from regnum_model.configs import BROKER_KEYS, DEFINITIONS

from regnum_broker.configs.flags import given, read_only
from regnum_broker.configs.values import Stored, in_force
from regnum_broker.settings import BrokerSettings


class DynamicConfigs:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Only assigns; ``settings`` are what the broker was started with."""
        self._settings: Final = settings
        self._flags: Final[Mapping[str, int]] = given(settings)
        self._stored = Stored(unknown=frozenset(BROKER_KEYS))
        self._told: Final[dict[str, list[Callable[[int], None]]]] = {}

    @property
    def stored(self) -> Stored:
        """What the store said last."""
        return self._stored

    def value(self, key: str) -> int:
        """What is in force."""
        return in_force(key, self._stored, self._flags)[0]

    def is_known(self, key: str) -> bool:
        """Whether the store was asked for it, and what it says could be read.

        Before that the flag or the default counts, which is no ground to forget what may have to be kept for longer.
        """
        return key not in self._stored.unknown

    def on(self, key: str, apply: Callable[[int], None]) -> None:
        """Tell somebody of each value that a setting has, from the present one on."""
        if key not in BROKER_KEYS:
            raise ValueError(f"{key} is no setting of brokers")
        self._told.setdefault(key, []).append(apply)
        apply(self.value(key))

    @property
    def heard(self) -> frozenset[str]:
        """Settings that somebody acts by."""
        return frozenset(self._told)

    def take(self, stored: Stored) -> None:
        """The store says something else: who acts by what differs, in value or in whose it is, hears of it."""
        before, self._stored = self._stored, stored
        for key in sorted(self._told):
            was, now = in_force(key, before, self._flags), in_force(key, stored, self._flags)
            if was == now:
                continue
            structlog.get_logger("configs").info("setting in force", setting=key, value=now[0], before=was[0])
            for apply in self._told[key]:
                apply(now[0])

    def described(self) -> Iterator[control_pb2.BrokerSetting]:
        """Everything that the broker runs with."""
        for key in sorted(BROKER_KEYS):
            value, source = in_force(key, self._stored, self._flags)
            definition = DEFINITIONS[key]
            yield control_pb2.BrokerSetting(
                name=key,
                value=definition.format(value),
                source=source,
                documentation=definition.doc,
                valid_values=definition.valid_values,
            )
        yield from read_only(self._settings)
