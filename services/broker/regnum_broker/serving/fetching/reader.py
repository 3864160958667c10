"""Reads for one call after another, within memory that is reserved before and in turns of their callers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import Holding
from regnum_service.slices import Turns

from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition, Role
from regnum_broker.serving.fetching.reading import Found, Read, read_logs
from regnum_broker.serving.fetching.requests import FetchResult
from regnum_broker.storage import Storage

GRANTED_BYTES_MIN: Final = 1024 * 1024
"""An answer becomes smaller where there is not enough memory, and with less than this it is not begun, however small it
is to be: a record of a megabyte is an answer to who asks for one byte."""

SLICE: Final = 500
"""Partitions looked at between two turns of the event loop (safety rule S22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A partition to be read."""

    partition: Partition
    role: Role | None
    """Under which it is read."""
    offset: int
    bytes_max: int

    @property
    def stands(self) -> bool:
        """Whether the replica still has that role."""
        return self.partition.role is self.role and not (isinstance(self.role, Leadership) and self.role.cut_off)


class Reader:
    """Reads what calls want. Belongs to the event loop."""

    def __init__(self, storage: Storage) -> None:
        """Only assigns."""
        self._storage: Final = storage

    async def read(
        self,
        wanted: dict[int, Wanted],
        results: Sequence[FetchResult],
        *,
        form: int,
        total_max: int,
        holding: Holding | None = None,
        waits: bool = False,
    ) -> Found:
        """Read everything that is wanted; with no room at all only what is known without reading.

        A caller that does not wait for memory is refused where there is none.
        """
        reads: list[Read] = []
        turns = Turns(SLICE)
        for index, item in wanted.items():
            await turns.took()
            result, partition = results[index], item.partition
            if not item.stands:
                result.error_code = errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
                result.error_message = "this broker was replaced as leader; refresh metadata and go to the leader"
                return Found(failed=True)
            result.high_watermark = partition.high_watermark
            result.log_start_offset = partition.log.log_start_offset
            if item.offset < partition.high_watermark:
                reads.append(
                    Read(
                        log=partition.log,
                        offset=item.offset,
                        bytes_max=item.bytes_max,
                        end_offset=partition.high_watermark,
                        result=result,
                    )
                )
        if not reads or not total_max:
            return Found()
        found = await self._read_reserved(reads, form=form, total_max=total_max, holding=holding, waits=waits)
        while found.lacks_bytes:
            found = await self._read_reserved(
                reads, form=form, total_max=total_max, holding=holding, waits=waits, needs=found.lacks_bytes
            )
        return found

    async def _read_reserved(
        self,
        reads: Sequence[Read],
        *,
        form: int,
        total_max: int,
        holding: Holding | None,
        waits: bool,
        needs: int = GRANTED_BYTES_MIN,
    ) -> Found:
        """Read within memory that is reserved before; as much as it ``needs`` at least, even for a small answer."""
        wanted = max(total_max, needs)
        if holding is not None and waits and holding.size < wanted:
            holding.become(0)
            await holding.wait_for(wanted)
        call = Call(peer="") if holding is None else holding.call
        async with self._storage.turns.turn(call.payer) as turn:
            if holding is not None and holding.size < wanted:
                # (Only here: who waits for a turn holds nothing meanwhile.)
                holding.become(0)
                wanted = holding.grant(wanted, needs)
            found = await turn.run(
                self._storage.read,
                lambda: read_logs(
                    reads,
                    form=form,
                    total_max=min(total_max, wanted),
                    memory_max=wanted,
                    abandoned=lambda: call.is_gone,
                ),
                call=call,
                holding=holding,
            )
        if holding is not None:
            holding.become(found.held_bytes, sent=found.size_bytes)
        return found
