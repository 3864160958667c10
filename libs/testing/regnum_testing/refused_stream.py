"""A call of gRPC that is refused in the moment in which its reader is cancelled."""

import asyncio

import grpc


class RefusedStream:
    """Reads as gRPC's streams do: the preparation takes the cancellation, and the refusal has come meanwhile."""

    def __init__(self, *, answer: bytes | None = None) -> None:
        """Only assigns; ``answer``: what came in that moment in place of a refusal."""
        self.waits = asyncio.Event()
        """Somebody waits for it, and may be cancelled now."""
        self._answer = answer

    def cancel(self) -> None:
        """Ended already."""

    async def write(self, _message: object) -> None:
        """Sent, for all that anybody knows."""

    async def _prepare(self) -> None:
        self.waits.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return

    async def read(self) -> bytes:
        """The answer, or the refusal."""
        await asyncio.create_task(self._prepare())
        if self._answer is None:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNIMPLEMENTED, grpc.aio.Metadata(), grpc.aio.Metadata())
        return self._answer
