"""Users to whom no quota applies, as the quota process that decided last left them in ``/quota/terms``."""

from contextlib import aclosing

import structlog
from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import Store
from regnum_model.nodes import MalformedNodeError
from regnum_model.quota_terms import QuotaTermsNode
from regnum_model.quotas import QUOTA_TERMS


class ExemptUsers:
    """Of one reign; nobody before the node is read."""

    def __init__(self) -> None:
        self._users: frozenset[str] = frozenset()
        self._log = structlog.get_logger("quotas")

    def __contains__(self, user: object) -> bool:
        return user in self._users

    async def follow(self, store: Store) -> None:
        """Keep up with the node; a task that ends with the session."""
        try:
            async with aclosing(store.watch_node(QUOTA_TERMS)) as changes:
                async for node in changes:
                    try:
                        found = QuotaTermsNode() if node is None else QuotaTermsNode.decode(node.data)
                    except MalformedNodeError as error:
                        self._log.error(
                            "exempt users as before",
                            path=QUOTA_TERMS,
                            reason=str(error),
                            advice="the next quota process that becomes active writes the node anew",
                        )
                        continue
                    self._users = found.exempt_users
        except SessionExpired:
            self._log.info("watch ended with the session", node=QUOTA_TERMS)
