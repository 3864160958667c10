"""Blocks of producer ids: compare-and-set on one node, so that no id is ever handed out twice."""

from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import BadVersion, NodeExists, NoNode
from regnum_coordination.port import Create, Set
from regnum_model import paths
from regnum_model.nodes import MalformedNodeError, ProducerIdBlockNode
from regnum_service.errors import RegnumError

from regnum_election.reign.writing import FencedStore

IDS_PER_BLOCK: Final = 1_000
"""Producer ids that one call hands out."""


async def next_block(store: FencedStore) -> tuple[int, int]:
    """First id and number of ids of a block that nobody else has or will have. Raises RegnumError."""
    while True:
        node = (await store.read_many((paths.PRODUCER_ID_BLOCK,))).get(paths.PRODUCER_ID_BLOCK)
        first = 0
        if node is not None:
            try:
                latest = ProducerIdBlockNode.decode(node.data)
            except MalformedNodeError as error:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR,
                    f"{paths.PRODUCER_ID_BLOCK} cannot be read ({error}); write back a block above all ids in use",
                ) from error
            first = latest.first + latest.count
        block = ProducerIdBlockNode(first=first, count=IDS_PER_BLOCK)
        operation = (
            Create(paths.PRODUCER_ID_BLOCK, block.encode())
            if node is None
            else Set(paths.PRODUCER_ID_BLOCK, block.encode(), node.stat.version)
        )
        try:
            await store.multi((operation,))
        except (BadVersion, NodeExists, NoNode):
            continue
        return block.first, block.count
