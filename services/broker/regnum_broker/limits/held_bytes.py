"""The account of bytes, by its former place (``regnum_service.limits.held_bytes``)."""

from regnum_service.limits.held_bytes import PARTS, RETRY_MS, HeldBytes, Holding, Purpose, refusal

__all__ = ["PARTS", "RETRY_MS", "HeldBytes", "Holding", "Purpose", "refusal"]
