"""How large a request of a method may be, and of how many objects, before it is parsed.

The listener has one bound for all (gRPC's, which refuses before it reads). Methods without records have a smaller one
here, and what is large is counted (``wire_objects``) before it becomes objects: on the loop as far as that is nothing,
and then on a thread.

The thread is one of its own, and counts a part of each request after another: however many and however long ones come,
they take no thread from what the process does for itself (its session with the store, its files), they keep nobody
waiting for more than a part of each, and a request whose client has hung up is let go of with the part.
"""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from regnum.types.v1 import errors_pb2

from regnum_service.errors import RegnumError
from regnum_service.wire_objects import ObjectCount

CONTROL_BYTES_MAX: Final = 8 * 1024 * 1024
"""Largest request of a method that takes no records: to parse one takes some 30 ms of a turn (safety rule S22)."""
OBJECTS_MAX: Final = 1_000_000
"""Messages inside of a request: 64 produce requests of 10,000 partitions, the most that is allowed, have 640,128."""
COUNTED_BYTES_MIN: Final = 64 * 1024
"""A smaller request with records is not counted: it becomes two megabytes at most."""
CONTROL_COUNTED_BYTES_MIN: Final = 16 * 1024
"""The same without records: no list in it has more than half as many elements."""
TEXT_BYTES_MAX: Final = 64 * 1024
"""A text in a request without records, or numbers in one field: names and values have some hundreds, and answers say
them again."""
LIST_MAX: Final = 10_000
"""Elements of any list in a request without records, wherever it stands; many methods take fewer."""
FIELDS_ON_THE_LOOP: Final = 2_000
"""Fields that are counted on the loop, about a millisecond; a request of records seldom has more."""
FIELDS_PER_PART: Final = 20_000
"""Fields that the thread counts of one request before it counts the next one: some 10 ms."""

_COUNTING: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="count-objects")
"""Of the process: more threads would count no faster, for the interpreter runs one at a time. It starts when needed."""

RECORDS: Final = frozenset(
    {"/regnum.broker.v1.LogService/Produce", "/regnum.broker.v1.LogService/ProduceStream"},
)
"""Methods whose requests carry records: as large as the listener takes."""


class TooMuchError(RegnumError):
    """A request is larger, or of more items, than its method takes."""

    def __init__(self, message: str) -> None:
        super().__init__(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)


class Parsing:
    """Makes messages of one method's bytes, within the bounds."""

    def __init__(
        self,
        method: str,
        parse: Callable[[bytes], Any] | None,
        *,
        with_records: Collection[str] = RECORDS,
        bytes_max: int = CONTROL_BYTES_MAX,
        objects_max: int = OBJECTS_MAX,
    ) -> None:
        """Only assigns; ``parse`` is the generated ``FromString``, None where bytes are wanted."""
        self._method: Final = method
        self._parse: Final = parse or bytes
        self._bytes_max: Final = None if method in with_records else bytes_max
        self._objects_max: Final = objects_max
        descriptor = getattr(getattr(parse, "__self__", None), "DESCRIPTOR", None)
        self._descriptor: Final = descriptor if isinstance(descriptor, Descriptor) else None

    async def message(self, data: bytes) -> Any:
        """The message. Raises RegnumError: TooMuchError where it is too large or has too many items, or it is none."""
        if self._bytes_max is not None and len(data) > self._bytes_max:
            raise TooMuchError(
                f"a request of {self._name} has {len(data)} bytes; it may have {self._bytes_max}: split it, nothing of"
                " it was done"
            )
        of_records = self._bytes_max is None
        least = COUNTED_BYTES_MIN if of_records else CONTROL_COUNTED_BYTES_MIN
        if len(data) >= least and self._descriptor is not None:
            count = ObjectCount(
                data,
                self._descriptor,
                most=self._objects_max,
                text_bytes_max=None if of_records else TEXT_BYTES_MAX,
                list_max=None if of_records else LIST_MAX,
            )
            if not count.go_on(FIELDS_ON_THE_LOOP):
                loop = asyncio.get_running_loop()
                while not await loop.run_in_executor(_COUNTING, count.go_on, FIELDS_PER_PART):
                    pass
            if count.longest_text:
                raise TooMuchError(
                    f"a text, or a list of numbers, in a request of {self._name} has {count.longest_text} bytes; it may"
                    f" have {TEXT_BYTES_MAX}, nothing of it was done"
                )
            if count.has_long_list:
                raise TooMuchError(
                    f"a list in a request of {self._name} has more than {LIST_MAX} elements; split it, nothing of it"
                    " was done"
                )
            if count.is_too_many:
                raise TooMuchError(
                    f"a request of {self._name} has more than {self._objects_max} items; split it, nothing of it was"
                    " done"
                )
        try:
            return self._parse(data)
        except DecodeError:
            raise _invalid(
                f"what came is no request of {self._name}; is the client made from another proto file?"
            ) from None

    @property
    def _name(self) -> str:
        return self._method.rpartition("/")[2]


def _invalid(message: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)
