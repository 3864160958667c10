"""``/feature``: what was finalized and never goes back (as in KIP-584), kept by the controller alone. Pure.

``/config/cluster`` is for people to write, also by hand. A process must not speak an older language than one that the
cluster has spoken, so the highest ``inter.broker.protocol.version`` that was ever in force stands here: it is written
before that version comes into force, and a lower one in the settings is taken back by it, also by the controller of the
next reign.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from regnum_model.configs import DEFINITIONS, INTER_BROKER_PROTOCOL
from regnum_model.nodes import MalformedNodeError

PATH: Final = "/feature"
EXAMPLE: Final = '{"version":1,"features":{"inter.broker.protocol.version":2}}'
"""What the node looks like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What is final."""

    inter_broker_protocol: int = 0
    """The highest ``inter.broker.protocol.version`` that was ever in force; 0: none is known. A later release may have
    written one that this one does not know."""

    def encode(self) -> bytes:
        """JSON."""
        content = {"version": 1, "features": {INTER_BROKER_PROTOCOL: self.inter_broker_protocol}}
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """What the node says. Raises MalformedNodeError."""
        try:
            content: Any = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise MalformedNodeError(f"not JSON: {error}") from None
        features = content.get("features") if isinstance(content, dict) else None
        level = features.get(INTER_BROKER_PROTOCOL) if isinstance(features, dict) else None
        definition = DEFINITIONS[INTER_BROKER_PROTOCOL]
        if isinstance(level, bool) or not isinstance(level, int) or level < definition.low:
            raise MalformedNodeError(f"{EXAMPLE} is expected, and {definition.valid_values}")
        return cls(inter_broker_protocol=level)
