"""The quota process that decides now: found in ``/quota/active``, reached over one channel for each incarnation."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any, Protocol

import structlog
from regnum.quota.v1 import quota_pb2
from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import Node, Store
from regnum_model.nodes import MalformedNodeError
from regnum_model.quotas import QUOTA_ACTIVE, QuotaProcessNode


class QuotaChannel(Protocol):
    """How one quota process is reached. Every method raises RegnumError, and is bounded in time."""

    async def admit(self, request: quota_pb2.AdmitRequest, *, timeout_s: float) -> quota_pb2.AdmitResponse:
        """Judge and charge."""

    async def describe(
        self, request: quota_pb2.DescribeBucketsRequest, *, timeout_s: float
    ) -> quota_pb2.DescribeBucketsResponse:
        """Show buckets."""

    async def close(self) -> None:
        """Hang up."""


class ActiveQuotaProcess:
    """Which process decides, as the store says; used on the controller's loop only."""

    def __init__(self, open_channel: Callable[[QuotaProcessNode], QuotaChannel]) -> None:
        self._open_channel = open_channel
        self._node: QuotaProcessNode | None = None
        self._channel: QuotaChannel | None = None
        self._changed = asyncio.Event()
        self._log = structlog.get_logger("quotas")

    @property
    def channel(self) -> QuotaChannel | None:
        """The way to it; None while there is none."""
        return self._channel

    @property
    def id(self) -> int | None:
        """Which process it is; None while there is none."""
        return None if self._node is None else self._node.id

    @property
    def incarnation(self) -> str | None:
        """Name of its run; None while there is none."""
        return None if self._node is None else self._node.incarnation

    def changed(self) -> Coroutine[Any, Any, bool]:
        """Waits until another process decides than when this was called, or none."""
        return self._changed.wait()

    async def follow(self, store: Store) -> None:
        """Keep up with who decides; a task that ends with the session."""
        try:
            async with aclosing(store.watch_node(QUOTA_ACTIVE)) as changes:
                async for node in changes:
                    found = self._decoded(node)
                    if found != self._node:
                        await self._turn_to(found)
        except SessionExpired:
            self._log.info("watch ended with the session", node=QUOTA_ACTIVE)

    async def close(self) -> None:
        """Hang up."""
        channel, self._channel, self._node = self._channel, None, None
        if channel is not None:
            await channel.close()

    async def _turn_to(self, node: QuotaProcessNode | None) -> None:
        former, self._node = self._channel, node
        self._channel = None if node is None else self._open_channel(node)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if node is not None:
            self._log.info("quota process decides", quota_process=node.id, address=str(node.internal))
        elif former is not None:
            self._log.warning("no quota process decides")
        if former is not None:
            await former.close()

    def _decoded(self, node: Node | None) -> QuotaProcessNode | None:
        if node is None:
            return None
        try:
            return QuotaProcessNode.decode(node.data)
        except MalformedNodeError as error:
            self._log.error("quota process ignored", path=QUOTA_ACTIVE, reason=f"{error}; delete the node")
            return None
