"""A large answer is encoded in pieces, and says what it would have said in one."""

import asyncio

import pytest
from regnum.metadata.v1.metadata_pb2 import GetMetadataResponse
from regnum_service.encoding import Encoding


@pytest.mark.parametrize("count", [0, 1, 99, 100, 1_001])
async def test_pieces_are_one_message(count: int) -> None:
    answer = Encoding(GetMetadataResponse(cluster_id="c", version=7), size=100)
    whole = GetMetadataResponse(cluster_id="c", version=7)
    for number in range(count):
        answer.piece.topics.add().topic.name = f"t{number}"
        whole.topics.add().topic.name = f"t{number}"
        await answer.took()
    assert GetMetadataResponse.FromString(answer.whole()) == whole


async def test_the_loop_has_a_turn_between_pieces() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count())
    answer = Encoding(GetMetadataResponse(), size=10)
    for _ in range(1_000):
        await answer.took()
    others.cancel()
    assert turns >= 100
