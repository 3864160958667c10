"""Records that get the time of their append (KIP-32): said in the head of their batch, and nowhere else."""

import struct
from typing import Final

from regnum_records.checksum import checksum
from regnum_records.header import CRC_START, LOG_APPEND_TIME_BIT, Buffer

_CRC_AND_ATTRIBUTES: Final = struct.Struct(">Ih")
_CRC_POSITION: Final = CRC_START - 4
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION: Final = 35


def at_append_time(batch: Buffer, append_ms: int) -> bytes:
    """The batch with that time, milliseconds since 1970, as that of all its records, and the checksum of that."""
    stamped = bytearray(batch)
    _, attributes = _CRC_AND_ATTRIBUTES.unpack_from(stamped, _CRC_POSITION)
    _MAX_TIMESTAMP.pack_into(stamped, _MAX_TIMESTAMP_POSITION, append_ms)
    attributes |= LOG_APPEND_TIME_BIT
    _CRC_AND_ATTRIBUTES.pack_into(stamped, _CRC_POSITION, 0, attributes)
    crc = checksum(stamped, CRC_START, len(stamped))
    _CRC_AND_ATTRIBUTES.pack_into(stamped, _CRC_POSITION, crc, attributes)
    return bytes(stamped)
