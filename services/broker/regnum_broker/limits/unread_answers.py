"""Silent readers, by their former place (``regnum_service.limits.unread_answers``)."""

from regnum_service.limits.unread_answers import PART_BYTES, TAKEN_S_MAX, SilentReaders, UnreadAnswers

__all__ = ["PART_BYTES", "TAKEN_S_MAX", "SilentReaders", "UnreadAnswers"]
