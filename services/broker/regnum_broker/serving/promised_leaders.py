"""Batches for partitions that this broker is about to lead: they wait until the leadership is recorded.

Goals: a leader epoch that begins is no refusal: not where the broker led in the epoch before, and not where a producer
has heard of it before the broker has brought it to its disk. The batches of a partition keep their order.

Constraints: nothing is appended before the epoch and its start are on the disk.

Algorithm: whoever finds a promise (``replication.partition``) stands in the line of its partition; so does who comes
after the promise was settled and before the line is empty. What is settled is taken up by one task, so many batches in
a turn, and each is admitted as if it came now.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

from regnum.types.v1 import errors_pb2
from regnum_model.ids import PartitionKey
from regnum_service.errors import Code
from regnum_service.supervisor import Supervisor

from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.replicas import NotHere
from regnum_broker.serving.produce_appends import Admitted, Outcome, Refused, Waiting
from regnum_broker.serving.produce_requests import Acks, ProducePartition

SLICE: Final = 200
"""Batches that are admitted together (safety rule S22)."""


class Admit(Protocol):
    """Says under which leadership a batch is appended now, or why under none."""

    def __call__(self, message: ProducePartition, *, acks: int) -> Leadership | NotHere:
        """For what came, and the acks that its producer wants."""


class PromisedLeaders:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        admit: Admit,
        append: Callable[[Sequence[Admitted]], Awaitable[None]],
        refuse: Callable[[Waiting, Code, str], None],
        supervisor: Supervisor,
    ) -> None:
        """Only assigns.

        Args:
            admit: asked again when a promise is settled.
            append: takes what is admitted; up to its first wait it hands it to the writer.
            refuse: told what is not, with code and reason.
            supervisor: has the task.
        """
        self._admit: Final = admit
        self._append: Final = append
        self._refuse: Final = refuse
        self._supervisor: Final = supervisor
        self._lines: Final[dict[PartitionKey, deque[Waiting]]] = {}
        self._settled: Final[dict[PartitionKey, None]] = {}
        self._admitting = False

    def led_soon(self, found: Leadership | NotHere, *, acks: int) -> Partition | None:
        """The replica, where a batch has to ``wait``; None: it goes on as it was found."""
        if acks == Acks.NONE:
            # Its request is over with this turn: nobody could be told.
            return None
        if isinstance(found, NotHere):
            return found.promised
        return found.partition if found.partition.key in self._lines else None

    def wait(self, partition: Partition, item: Waiting) -> None:
        """Stand in line."""
        item.pending.open[item.index] = item
        line = self._lines.get(partition.key)
        if line is not None:
            line.append(item)
            return
        self._lines[partition.key] = deque((item,))
        if partition.promised is None:
            self._note(partition.key)
        else:
            partition.promised.tell(partial(self._note, partition.key))

    def goes_again(self, item: Admitted, outcome: Outcome) -> bool:
        """Whether a batch waits that the writer refused because its leadership was over: the next is of its tenure."""
        pending, leadership = item.pending, item.leadership
        partition = leadership.partition
        if (
            not isinstance(outcome, Refused)
            or outcome.code != errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
            or partition.tenure is not leadership.tenure
            or pending is None
            or pending.ended
        ):
            return False
        self.wait(partition, Waiting(pending=pending, index=item.index, message=item.message))
        return True

    def takes_back(self, item: Admitted) -> bool:
        """Whether a batch that is not with the writer yet waits with the others: they go in the order they came."""
        partition, pending = item.leadership.partition, item.pending
        if partition.key not in self._lines or pending is None or pending.ended:
            return False
        self.wait(partition, Waiting(pending=pending, index=item.index, message=item.message))
        return True

    def _note(self, key: PartitionKey) -> None:
        self._settled[key] = None
        if not self._admitting:
            self._admitting = True
            self._supervisor.start("produce: promised leaders", self._go_on())

    async def _go_on(self) -> None:
        while self._settled:
            admitted: list[Admitted] = []
            for waiting in self._next():
                pending, index, message = waiting.pending, waiting.index, waiting.message
                if pending.ended:
                    continue
                # This task is nobody's call, and who may write is asked of the caller.
                found = pending.context.run(partial(self._admit, message, acks=pending.acks))
                if isinstance(found, Leadership):
                    item = Admitted(pending=pending, index=index, leadership=found, message=message)
                    pending.open[index] = item
                    admitted.append(item)
                elif found.promised is not None:
                    self.wait(found.promised, waiting)
                else:
                    self._refuse(waiting, found.code, found.message)
            await self._append(admitted)
            await asyncio.sleep(0)
        self._admitting = False

    def _next(self) -> list[Waiting]:
        items: list[Waiting] = []
        while self._settled and len(items) < SLICE:
            key = next(iter(self._settled))
            # What the writer was refused goes before what came later and never got there.
            line = sorted(self._lines[key], key=lambda item: item.pending.began_s)
            room = SLICE - len(items)
            items += line[:room]
            if len(line) > room:
                self._lines[key] = deque(line[room:])
            else:
                del self._lines[key], self._settled[key]
        return items
