"""What is damaged, in the words of the wire."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.item_errors import item_status
from regnum_service.slices import Turns

from regnum_election.partitions.giving_up import LOST, GivenUp, Kind

PARTITIONS_PER_TURN: Final = 250
"""Partitions put into words between two turns of the event loop (safety rule S22)."""

KINDS: Final[Mapping[Kind, admin_pb2.PartitionDamage.ValueType]] = MappingProxyType(
    {
        Kind.STATE: admin_pb2.PARTITION_DAMAGE_STATE,
        Kind.STATE_ON_ITS_WAY_OUT: admin_pb2.PARTITION_DAMAGE_STATE_ON_ITS_WAY_OUT,
        Kind.RECORD: admin_pb2.PARTITION_DAMAGE_REMOVAL_RECORD,
        Kind.TOMBSTONE: admin_pb2.PARTITION_DAMAGE_TOMBSTONE,
    }
)


async def give_up_response(found: Sequence[GivenUp]) -> admin_pb2.GiveUpPartitionsResponse:
    """What a caller is answered."""
    turns = Turns(PARTITIONS_PER_TURN)
    response = admin_pb2.GiveUpPartitionsResponse()
    for one in found:
        await turns.took()
        response.results.add(
            partition=one.partition,
            error_code=errors_pb2.ERROR_CODE_NONE if one.rejection is None else one.rejection.code,
            error_message="" if one.rejection is None else one.rejection.message,
            status=None if one.rejection is None else item_status(one.rejection.code, one.rejection.message),
            damage=admin_pb2.PARTITION_DAMAGE_UNSPECIFIED if one.kind is None else KINDS[one.kind],
            reason=one.reason,
            may_be_lost="" if one.kind is None else LOST[one.kind],
            given_up=one.done,
        )
    return response
