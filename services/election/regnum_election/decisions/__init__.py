"""What the controller decides: pure, over frozen values. No asyncio, gRPC, clock or store."""
