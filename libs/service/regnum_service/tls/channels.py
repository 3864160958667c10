"""Channels over TLS that take up new certificates without a call that notices.

A gRPC channel keeps the credentials that it was made with, also when it connects anew. So each call asks whether the
files changed; if they did it goes over a new channel (``regnum_service.renewed_channel``).
"""

import asyncio
from collections.abc import Callable

import grpc
from regnum_model.nodes import Address

from regnum_service.channel import CHANNEL_OPTIONS, Open, addressed, aio_channel, open_channel, target
from regnum_service.renewed_channel import RenewedChannel, is_name
from regnum_service.tls.files import WatchedFiles


def opener(files: WatchedFiles | None) -> Open:
    """How channels are opened: with these files over TLS; None: in plaintext."""
    if files is None:
        return open_channel

    def open_secure(address: Address, addressee: str = "") -> grpc.aio.Channel:
        def make() -> grpc.aio.Channel:
            return aio_channel(target(address), credentials=files.pem.channel_credentials(), options=CHANNEL_OPTIONS)

        channel = RenewedChannel(make, follows_name=is_name(address.host), version=looking_at(files))
        return addressed(channel, address, addressee)

    return open_secure


def looking_at(files: WatchedFiles) -> Callable[[], int]:
    """The version of the files, for channels that are made of them; each call has them looked at where that is due."""

    def version() -> int:
        if files.is_due:
            # On a thread: this call still goes where the last one went, the next one finds what changed.
            asyncio.get_running_loop().run_in_executor(None, files.check)
        return files.version

    return version
