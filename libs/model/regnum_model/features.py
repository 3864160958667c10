"""``/feature``: what was finalized and never goes back (as in KIP-584), kept by the controller alone. Pure.

``/config/cluster`` is for people to write, also by hand. A process must not speak an older language than one that the
cluster has spoken, so the highest ``inter.broker.protocol.version`` that was ever in force stands here: it is written
before that version comes into force, and a lower one in the settings is taken back by it, also by the controller of the
next reign.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from regnum_model.configs import DEFINITIONS, INTER_BROKER_PROTOCOL
from regnum_model.nodes import MalformedNodeError
from regnum_model.nodes.reading import dumped, versioned

PATH: Final = "/feature"
EXAMPLE: Final = '{"version":1,"features":{"inter.broker.protocol.version":2}}'
"""What the node looks like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What is final."""

    inter_broker_protocol: int = 0
    """The highest ``inter.broker.protocol.version`` that was ever in force; 0: none is known. A later release may have
    written one that this one does not know."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """What a later release finalized besides; it stays."""

    def encode(self) -> bytes:
        """JSON."""
        return dumped({"version": 1, "features": {**self.others, INTER_BROKER_PROTOCOL: self.inter_broker_protocol}})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """What the node says. Raises MalformedNodeError."""
        try:
            content: Any = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise MalformedNodeError(f"not JSON: {error}") from None
        features = versioned(content, PATH).get("features") if isinstance(content, dict) else None
        if not isinstance(features, dict):
            features = {}
        level = features.get(INTER_BROKER_PROTOCOL)
        definition = DEFINITIONS[INTER_BROKER_PROTOCOL]
        if isinstance(level, bool) or not isinstance(level, int) or level < definition.low:
            raise MalformedNodeError(f"{EXAMPLE} is expected, and {definition.valid_values}")
        others = {name: value for name, value in features.items() if name != INTER_BROKER_PROTOCOL}
        return cls(inter_broker_protocol=level, others=others)
