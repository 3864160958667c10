"""The channel to one incarnation of one process."""

import grpc
import pytest
from regnum_model.nodes import Address
from regnum_service.channel import PeerChannel, open_channel
from regnum_service.errors import RegnumError


class Opening:
    """Opens channels and counts them."""

    def __init__(self) -> None:
        self.opened: list[grpc.aio.Channel] = []

    def __call__(self, address: Address, addressee: str = "") -> grpc.aio.Channel:
        self.opened.append(open_channel(address, addressee))
        return self.opened[-1]


def channel_of(opening: Opening) -> PeerChannel:
    return PeerChannel(
        Address(host="127.0.0.1", port=1), "broker-1", gone="that process was replaced", open_one=opening
    )


async def test_it_opens_with_the_first_call_and_serves_every_later_one() -> None:
    opening = Opening()
    channel = channel_of(opening)
    assert opening.opened == []
    assert channel.get() is channel.get()
    assert len(opening.opened) == 1
    await channel.close()
    assert opening.opened[0].get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_a_call_after_the_end_opens_none() -> None:
    """Nobody would close it."""
    opening = Opening()
    channel = channel_of(opening)
    await channel.close()
    with pytest.raises(RegnumError, match="that process was replaced"):
        channel.get()
    assert opening.opened == []


async def test_a_renewed_one_is_opened_again_with_the_next_call() -> None:
    opening = Opening()
    channel = channel_of(opening)
    await channel.renew()
    assert opening.opened == []
    before = channel.get()
    await channel.renew()
    assert before.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    assert channel.get() is not before
    await channel.close()
    assert len(opening.opened) == 2
