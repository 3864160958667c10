"""``/quota/terms``: what every win of the seat of the active quota process leaves for good.

Its version names one term (safety rule S2). Its content says who is exempt from quotas, by the settings of the process
that won last: so that whoever stands in for that process, also after all of them died, exempts the same users.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from regnum_model.nodes import MalformedNodeError
from regnum_model.nodes.reading import versioned

EXEMPT_MAX: Final = 500
"""Users who may be exempt: all of them go into one node, which has to stay below ZooKeeper's limit of 1 MiB."""
EXEMPT_CHARACTERS_MAX: Final = 125_000
"""Characters of all their names together, for the same reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTermsNode:
    """Content of the node."""

    exempt_users: frozenset[str] = frozenset()
    """Users to whom no quota applies."""

    def encode(self) -> bytes:
        """JSON; nothing where there is nothing to say, which is what earlier versions wrote."""
        if not self.exempt_users:
            return b""
        content = {"version": 1, "exempt_users": sorted(self.exempt_users)}
        return json.dumps(content, separators=(",", ":")).encode("utf-8")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        if not data:
            return cls()
        try:
            content: Any = json.loads(data.decode("utf-8"))
            users = content["exempt_users"]
            versioned(content, "/quota/terms")
        except MalformedNodeError:
            raise
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise MalformedNodeError(f"no list of exempt users: {error!r}") from None
        if not isinstance(users, list) or not all(isinstance(user, str) for user in users):
            raise MalformedNodeError('{"version":1,"exempt_users":["admin"]} is expected')
        return cls(exempt_users=frozenset(users))
