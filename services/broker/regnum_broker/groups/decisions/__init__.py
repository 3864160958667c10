"""Pure: no asyncio, gRPC, clock or chance."""
