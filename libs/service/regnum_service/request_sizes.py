"""How large a request of a method may be, and of how many objects, before any of it is done.

Goals: what a request may ask for is bounded wherever it stands in it; to find that out costs about as much as to parse
the request, and takes a millisecond or a few of the event loop at a time, however many come.

Constraints: whatever is computed here has the interpreter to itself, on any thread. On a thread of its own it is worse:
the loop gets the interpreter back 5 ms after each time that it waits for something, ten times for each answer.

Algorithm: the listener has one bound for all (gRPC's, which refuses before it reads); methods without records have a
smaller one here. What is large goes on in parts, in turns of callers (``slices``): a message of PARSED_BYTES_MAX is
parsed by protobuf, in C, and then its lists and texts are looked at where they have bytes enough to be too long. Only a
larger one is counted before (``wire_objects``, which is Python), for it may become tens of times its bytes. A request
whose client has hung up is let go of with the part.

Example: a Fetch of 10,000 partitions, 190 KB: 43 ms to count it field by field; 1 ms to parse it, 4 ms to look at it.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from regnum.types.v1 import errors_pb2

from regnum_service.errors import RegnumError
from regnum_service.slices import next_turn
from regnum_service.wire_objects import ObjectCount

CONTROL_BYTES_MAX: Final = 8 * 1024 * 1024
"""Largest request of a method that takes no records: to parse one takes some 30 ms of a turn (safety rule S22)."""
OBJECTS_MAX: Final = 1_000_000
"""Messages inside of a request: 64 produce requests of 10,000 partitions, the most that is allowed, have 640,128."""
COUNTED_BYTES_MIN: Final = 64 * 1024
"""A smaller request with records is not counted: it becomes two megabytes at most."""
TEXT_BYTES_MAX: Final = 64 * 1024
"""A text in a request without records: names and values have some hundreds, and answers say them again."""
LIST_MAX: Final = 10_000
"""Elements of any list in a request without records, wherever it stands; many methods take fewer."""
CONTROL_COUNTED_BYTES_MIN: Final = LIST_MAX
"""A smaller message without records is not looked at: no list in it is too long, for an element takes a byte where it
is packed, and two elsewhere, and no text."""
PARSED_BYTES_MAX: Final = 256 * 1024
"""A request of so many bytes is parsed before it is looked at: the worst takes 12 ms, and 45 times its bytes, 12 MB."""
FIELDS_PER_PIECE: Final = 1_000
"""Fields that are counted of a larger one before the loop has a turn, about a millisecond; a request of records seldom
has more, and is counted at once."""
OBJECT_BYTES_MIN: Final = 2
"""What a message inside takes on the wire: its tag and its length."""

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
        if len(data) < (COUNTED_BYTES_MIN if of_records else CONTROL_COUNTED_BYTES_MIN) or self._descriptor is None:
            return self._parsed(data)
        count = ObjectCount(
            data,
            self._descriptor,
            most=self._objects_max,
            text_bytes_max=None if of_records else TEXT_BYTES_MAX,
            list_max=None if of_records else LIST_MAX,
        )
        if of_records and count.go_on(FIELDS_PER_PIECE):
            self._judge(count)
            return self._parsed(data)
        if len(data) > min(PARSED_BYTES_MAX, OBJECT_BYTES_MIN * self._objects_max):
            while not count.go_on(FIELDS_PER_PIECE):
                await next_turn()
            self._judge(count)
        await next_turn()
        message = self._parsed(data)
        if not of_records:
            await self._look_at(message)
        return message

    def _parsed(self, data: bytes) -> Any:
        try:
            return self._parse(data)
        except DecodeError:
            raise _invalid(
                f"what came is no request of {self._name}; is the client made from another proto file?"
            ) from None

    def _judge(self, count: ObjectCount) -> None:
        """Raise TooMuchError for what was found before the message is parsed."""
        if count.longest_text:
            raise self._long_text(count.longest_text)
        if count.has_long_list:
            raise self._long_list()
        if count.is_too_many:
            raise TooMuchError(
                f"a request of {self._name} has more than {self._objects_max} items; split it, nothing of it was done"
            )

    async def _look_at(self, message: Message) -> None:
        """The same for one that is parsed. What has fewer bytes than a long list is not gone into."""
        messages = [message]
        while messages:
            await next_turn()
            one = messages.pop()
            size = one.ByteSize()
            for field, value in one.ListFields():
                values = value if field.is_repeated else (value,)
                if len(values) > LIST_MAX:
                    raise self._long_list()
                if field.type == FieldDescriptor.TYPE_STRING and size > TEXT_BYTES_MAX:
                    longest = max(len(text.encode()) for text in values)
                    if longest > TEXT_BYTES_MAX:
                        raise self._long_text(longest)
                # (As many bytes as the largest of them has at most.)
                elif field.message_type and size - OBJECT_BYTES_MIN * len(values) > CONTROL_COUNTED_BYTES_MIN:
                    messages += (inner for inner in values if inner.ByteSize() > CONTROL_COUNTED_BYTES_MIN)

    def _long_text(self, size_bytes: int) -> TooMuchError:
        return TooMuchError(
            f"a text in a request of {self._name} has {size_bytes} bytes; it may have {TEXT_BYTES_MAX}, nothing of it"
            " was done"
        )

    def _long_list(self) -> TooMuchError:
        return TooMuchError(
            f"a list in a request of {self._name} has more than {LIST_MAX} elements; split it, nothing of it was done"
        )

    @property
    def _name(self) -> str:
        return self._method.rpartition("/")[2]


def _invalid(message: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)
