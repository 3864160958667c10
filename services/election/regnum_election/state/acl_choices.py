"""What wide filters chose, kept in the store so that a repeat removes that and no more (safety rule S20).

Algorithm: of a mutation id whose choice is in the store, that choice. Of any other: choose, write the parts, then the
head, each under the reign's fence; only then is any rule removed. A controller that dies before the head has removed
nothing, and the repeat chooses anew; after it, the repeat takes the head's choice, and the patterns that were done
already answer from their own logs. When all is done the head says so, and a repeat asks no pattern at all.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import NodeExists, NodeFailure
from regnum_coordination.port import Create, Delete, Set
from regnum_model.acls.bindings import ResourcePattern
from regnum_model.acls.chosen import (
    FOLDER,
    PARTS_MAX,
    ChoiceHead,
    Marks,
    decode_head,
    decode_part,
    encode_head,
    encode_part,
    head_name,
    key_of,
    made_at_ms,
    part_name,
    parts_of,
)
from regnum_model.mutations import REPEATED_MS, another_content
from regnum_model.nodes import MalformedNodeError

from regnum_election.decisions.rejection import Rejection
from regnum_election.reign.writing import FencedStore

CHOICES_MAX: Final = 2_000
"""Choices that the store keeps; when there are more, the older half goes before its time."""

NODES_PER_READ: Final = 100
"""Nodes read between two turns of the event loop (safety rule S22)."""

Chosen = Sequence[tuple[ResourcePattern, Marks]]


class Choices:
    """Of one reign."""

    def __init__(self, store: FencedStore, wall_ms: Callable[[], int]) -> None:
        """``store``: of the reign; ``wall_ms``: milliseconds since 1970, only tells how old a choice is."""
        self._store: Final = store
        self._wall_ms: Final = wall_ms
        self._turn: Final = asyncio.Lock()

    async def of(
        self, id: str, digest: str, choose: Callable[[], AsyncIterator[tuple[ResourcePattern, Marks]]]
    ) -> "Choice | Rejection":
        """What a mutation chose, now or when it first came. Raises what the store raises.

        Args:
            id: of the mutation.
            digest: of its filter.
            choose: what it would choose now.
        """
        async with self._turn:
            known = await self.known(id, digest)
            if known is not None:
                return known
            chosen = [one async for one in choose()]
            return await self._write(id, digest, chosen)

    async def known(self, id: str, digest: str) -> "Choice | Rejection | None":
        """What a mutation chose when it first came; None: it has not come. Raises what the store raises."""
        key = key_of(id)
        path = f"{FOLDER}/{key}"
        node = (await self._store.read_many((path,))).get(path)
        if node is None:
            return None
        try:
            head = decode_head(node.data)
            if head.digest != digest or head.id != id:
                return another_content(path, id)
            if head.done is not None:
                return Choice(self._store, head, (), node.stat.version)
            chosen = list(head.chosen.items())
            for number in range(1, head.parts):
                part = f"{FOLDER}/{part_name(key, number)}"
                more = (await self._store.read_many((part,))).get(part)
                if more is None or made_at_ms(more.data) != head.at_ms:
                    return _unreadable(part, "it is gone" if more is None else "it is of another choice")
                chosen += decode_part(more.data).items()
                await asyncio.sleep(0)
        except MalformedNodeError as error:
            return _unreadable(path, str(error))
        return Choice(self._store, head, chosen, node.stat.version)

    async def sweep(self) -> int:
        """Delete choices that nobody asks any more; how many nodes went. Raises what the store raises."""
        return await self._delete_before(self._wall_ms() - REPEATED_MS, await self._store.names(FOLDER))

    async def _write(self, id: str, digest: str, chosen: Chosen) -> "Choice | Rejection":
        await self._make_room()
        key, at_ms = key_of(id), self._wall_ms()
        parts = []
        for part in parts_of(chosen):
            parts.append(part)
            await asyncio.sleep(0)
        if len(parts) > PARTS_MAX:
            return Rejection(
                code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
                message="the filter chooses more rules than one call may remove; say less at once: a principal, a kind "
                "of resource, a pattern",
            )
        try:
            for number, part in enumerate(parts[1:], 1):
                path = f"{FOLDER}/{part_name(key, number)}"
                # What a choice left that was never finished; who wrote it reigns no more.
                old = (await self._store.read_many((path,))).get(path)
                data = encode_part(part, at_ms)
                await self._store.multi((Create(path, data) if old is None else Set(path, data, old.stat.version),))
            done = None if chosen else 0
            head = ChoiceHead(id=id, digest=digest, at_ms=at_ms, parts=len(parts), chosen=parts[0], done=done)
            await self._store.multi((Create(f"{FOLDER}/{key}", encode_head(head)),))
        except NodeFailure as error:
            # A write that nobody waited for any more may have been late, and its choice counts.
            if isinstance(error, NodeExists) and (known := await self.known(id, digest)) is not None:
                return known
            return Rejection(
                code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
                message=f"what the filter chose cannot be kept ({error}), and nothing was removed; look at {FOLDER} in "
                "the store and try again",
            )
        return Choice(self._store, head, chosen, 0)

    async def _make_room(self) -> None:
        names = await self._store.names(FOLDER)
        if len({head_name(name) for name in names}) < CHOICES_MAX:
            return
        times = sorted([at_ms async for _, at_ms in self._times(names)])
        if len(times) >= CHOICES_MAX:
            await self._delete_before(times[len(times) // 2], names)

    async def _delete_before(self, before_ms: int, names: Sequence[str]) -> int:
        gone = 0
        old = {name async for name, at_ms in self._times(names) if at_ms < before_ms}
        # A head goes before its parts: a head whose parts are gone is none.
        for name in sorted(name for name in names if head_name(name) in old or name in old):
            path = f"{FOLDER}/{name}"
            node = (await self._store.read_many((path,))).get(path)
            if node is not None:
                try:
                    await self._store.multi((Delete(path, node.stat.version),))
                except NodeFailure:
                    continue
                gone += 1
        return gone

    async def _times(self, names: Sequence[str]) -> AsyncIterator[tuple[str, int]]:
        """When each head was written, and each part that has no head."""
        heads = {name for name in names if head_name(name) == name}
        wanted = [name for name in names if name in heads or head_name(name) not in heads]
        for start in range(0, len(wanted), NODES_PER_READ):
            paths = {f"{FOLDER}/{name}": name for name in wanted[start : start + NODES_PER_READ]}
            for path, node in (await self._store.read_many(tuple(paths))).items():
                yield paths[path], made_at_ms(node.data)
                await asyncio.sleep(0)


class Choice:
    """What one mutation chose."""

    def __init__(self, store: FencedStore, head: ChoiceHead, chosen: Chosen, version: int) -> None:
        """Only assigns. ``version``: of the head's node."""
        self._store: Final = store
        self._head: Final = head
        self._version: Final = version
        self.chosen: Final = chosen
        """Patterns, each with the rules that go; none any more when it is done."""

    @property
    def done(self) -> int | None:
        """Rules that went, when all is carried out."""
        return self._head.done

    async def finish(self, count: int) -> None:
        """All of it is carried out; ``count`` rules went. Raises what the store raises."""
        head = self._head
        finished = ChoiceHead(
            id=head.id, digest=head.digest, at_ms=head.at_ms, parts=head.parts, chosen=head.chosen, done=count
        )
        try:
            await self._store.multi((Set(f"{FOLDER}/{key_of(head.id)}", encode_head(finished), self._version),))
        except NodeFailure:
            # Another call with this id was faster, or it is so old that it was swept.
            return


def _unreadable(path: str, reason: str) -> Rejection:
    return Rejection(
        code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
        message=f"what this call chose cannot be read ({path}: {reason}); list the rules, and remove what is left with "
        "another mutation id",
    )
