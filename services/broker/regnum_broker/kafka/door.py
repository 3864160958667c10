"""From a frame to its answer: which call it is, what it passes before it is parsed, who answers.

Order of a request: its size is admitted by the budget (``connection``), its head is read, it waits where its connection
is muted (KIP-219: the answer before went out at once), and only then is it parsed. What an overload refuses is not said
to a client of Kafka, which may know no such error: the call waits, and is made again (``refusals``). Each attempt is
charged to its client as it ends, and what it owes for one is waited for before the next.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any, Final, Protocol

import grpc
from regnum.types.v1 import errors_pb2
from regnum_kafka_wire.apis import API_VERSIONS, APIS, PRODUCE, Api, Buffers
from regnum_kafka_wire.frames import Head, is_longer, longest_array, read_request, write_response
from regnum_kafka_wire.primitives import MalformedError, TooManyItemsError
from regnum_model.api_versions import ADMIN_SERVICE, forwarding_of
from regnum_service.access.authorization import set_call_name
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, reason_of
from regnum_service.gates import Gate, Meter
from regnum_service.limits.answers import Answer, Answers
from regnum_service.limits.call import Call
from regnum_service.limits.threads import for_caller
from regnum_service.request_sizes import LIST_MAX
from regnum_service.status import from_rpc_error
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

from regnum_broker.kafka.admin import Admin
from regnum_broker.kafka.administration.rooms import Refusing, Room
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.data import Data
from regnum_broker.kafka.groups import Groups
from regnum_broker.kafka.produce_together import ITEMS_AT_ONCE, Taking, Together
from regnum_broker.kafka.refusals import Again, Attempts, is_waited_for, told, unsaid
from regnum_broker.limits.throttling import LOG_SERVICE

NOT_RESERVED: Final = frozenset({0, 11, 12, 13, 14})
"""Calls for whose answers nothing is reserved when the request is there: Produce, whose answer is small, and what makes
and keeps a member of a group: those that wait for one another must not keep each other out. Large answers to members
are paid for when the wait is over."""

CARRIED_OUT: Final = frozenset({0, 8, 13, 19, 20, 21, 30, 31, 33, 37, 42, 43, 44, 45, 47, 49})
"""Calls that are carried out though their client has hung up, as in Kafka: all that change something, but for those
that make a member of a group or keep it."""

PATHS: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: f"{LOG_SERVICE}Produce",
        1: f"{LOG_SERVICE}Fetch",
        **{
            api.key: f"{ADMIN_SERVICE}{api.name}"
            for api in APIS.values()
            if forwarding_of(f"{ADMIN_SERVICE}{api.name}") is not None
        },
    }
)
"""What gates know a call by, where a quota holds some calls and not all."""


class Charging(Meter, Protocol):
    """Measures what attempts take, and has their clients wait for it."""

    def time_owed_s(self, call: Call) -> float:
        """For so long the connection of a call is held because too much time was taken for it."""


class Door:
    """Of one listener. Belongs to its event loop."""

    def __init__(
        self,
        *,
        data: Data,
        log: Taking,
        groups: Groups,
        admin: Admin,
        administration: Mapping[int, Room],
        gates: Sequence[Gate],
        answers: Answers,
        meter: Charging,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """Only assigns.

        Args:
            metrics: where calls are counted.
            data: records and offsets.
            log: takes what is produced together; it looks at rights itself, as it does for the messages of streams.
            groups: consumer groups.
            admin: the cluster and its topics.
            administration: what answers all other calls, by API key.
            gates: what calls pass before they are parsed, in this order.
            answers: has memory for what is made for them; what says how much it makes is refused without.
            meter: measures what they take.
            clock: source of time.
        """
        self._data: Final = data
        self._log: Final = log
        self._gates: Final = tuple(gates)
        self._answers: Final = answers
        self._meter: Final = meter
        self._clock: Final = clock
        self._metrics: Final = metrics
        self._rooms: Final[Mapping[int, Room]] = {
            **administration,
            0: (data.produce, data.no_produce),
            1: (data.fetch, data.no_fetch),
            2: (data.list_offsets, data.no_list_offsets),
            3: (admin.metadata, admin.no_metadata),
            8: (groups.commit, groups.no_commit),
            9: (groups.committed, groups.not_committed),
            10: (groups.find, groups.not_found),
            11: (groups.join, groups.no_join),
            12: (groups.heartbeat, groups.no_heartbeat),
            13: (groups.leave, groups.no_leave),
            14: (groups.sync, groups.no_sync),
            18: (admin.versions, admin.no_versions),
            19: (admin.create, admin.no_create),
            20: (admin.delete, admin.no_delete),
            22: (data.producer_id, data.no_producer_id),
            23: (data.ends_of_epochs, data.no_ends_of_epochs),
            60: (admin.cluster, admin.no_cluster),
        }

    async def answer(self, frame: memoryview, context: Context) -> Buffers | None:
        """The frame that answers one; None: its sender waits for none.

        Raises:
            MalformedError: it is no request that is offered here; its connection is over.
            TooManyItemsError: likewise.
        """
        head = context.head
        api = APIS.get(head.key)
        if api is not None and head.key == API_VERSIONS and head.version not in api.readers:
            # In the oldest form, which every client can read (KIP-511).
            _, refuse = self._rooms[API_VERSIONS]
            refused = refuse(None, context, errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION)
            return write_response(api, 0, head.correlation_id, refused)
        if api is None or head.version not in api.readers:
            raise MalformedError(f"call {head.key} is not offered in version {head.version}")
        set_call_name(f"kafka/{api.name}")
        began_s = self._clock.monotonic()
        with ExitStack() as leaving:
            for gate in self._gates:
                passed = await gate.enter(PATHS.get(head.key, f"/kafka/{api.name}"), context.call)
                if passed is not None:
                    leaving.callback(passed.leave)
            request, is_too_long = await _read(api, context, frame)
            if is_too_long:
                return await self._too_long(api, request, context, began_s)
            response, making = await self._made(api, request, len(frame), context, began_s)
        return await _written(api, context, response, making)

    async def _too_long(self, api: Api, request: Any, context: Context, began_s: float) -> Buffers | None:
        """The refusal of a request with a list that is longer than one may be, at either door."""
        self._note(api, context.version, reason_of(errors_pb2.ERROR_CODE_INVALID_REQUEST), began_s)
        making = self._answers.begin(PATHS.get(api.key, api.name), context.call)
        _, refuse = self._rooms[api.key]
        response = await for_caller(lambda: refuse(request, context, errors_pb2.ERROR_CODE_INVALID_REQUEST))
        return await _written(api, context, response, making)

    def ends_with_its_client(self, head: Head) -> bool:
        """Whether such a request is of no use once its client has hung up."""
        return head.key not in CARRIED_OUT

    def takes_together(self, head: Head) -> bool:
        """Whether such a request may be taken with others: what each of them takes is not measured then."""
        return head.key == PRODUCE and head.version in APIS[PRODUCE].readers and not self._meter.is_on

    async def together(self, asked: Sequence[tuple[memoryview, Context]]) -> Together:
        """Begin to answer Produce requests that were read together; returns when they are with the writer.

        Those from the first one on that is large, or cannot be read, are left out, and are to be asked for again.
        """
        api, began_s = APIS[PRODUCE], self._clock.monotonic()
        set_call_name(f"kafka/{api.name}")

        def render(context: Context, response: Any, error: str) -> Buffers | None:
            self._note(api, context.version, error, began_s)
            if response is None:
                return None
            buffers = write_response(api, context.version, context.head.correlation_id, response)
            making = self._answers.begin(PATHS[PRODUCE], context.call)
            if making is not None:
                making.made(buffers)
            return buffers

        together = Together(data=self._data, render=render)
        try:
            for gate in self._gates:
                passed = await gate.enter(PATHS[PRODUCE], asked[0][1].call)
                if passed is not None:
                    together.leaving.callback(passed.leave)
            for frame, context in asked:
                try:
                    request = read_request(api, context.head, frame, items_max=ITEMS_AT_ONCE - together.items)
                except (MalformedError, TooManyItemsError):
                    break
                await together.add(request, context)
            await together.take(self._log, self._clock)
        except BaseException:
            together.close()
            raise
        return together

    def _note(self, api: Api, version: int, error: str, began_s: float) -> None:
        duration = self._metrics.histogram(instruments.KAFKA_REQUESTS, api.name, str(version), error)
        duration.record(self._clock.monotonic() - began_s)

    async def _made(
        self, api: Api, request: Any, size_bytes: int, context: Context, began_s: float
    ) -> tuple[Any, Answer | None]:
        """The response, and what holds it. Raises RegnumError: it would have no place for what is to be told."""
        attempts, lacked, path = Attempts(self._clock), 0, PATHS.get(api.key, api.name)
        while True:
            making = self._answers.begin(path, context.call)
            if making is not None:
                making.lacked = lacked
            attempt = self._attempt(api, request, size_bytes, context, began_s, making, is_last=attempts.is_last)
            is_on = self._meter.is_on
            response = await (self._meter.measured(context.call, request, attempt) if is_on else attempt)
            if not isinstance(response, Again):
                return response, making
            if making is not None:
                # Others may have it, who are waited for here.
                making.made(b"")
            lacked = response.lacked
            await attempts.pause(response, self._meter.time_owed_s(context.call) if is_on else 0.0)

    async def _attempt(
        self,
        api: Api,
        request: Any,
        size_bytes: int,
        context: Context,
        began_s: float,
        making: Answer | None,
        *,
        is_last: bool,
    ) -> Any:
        """The response, or Again. Raises RegnumError as ``_made``."""
        (answering, refuse), worked = self._rooms[api.key], False
        try:
            if making is not None:
                making.reserve()
                if api.key not in NOT_RESERVED:
                    making.asked(request, size_bytes)
            worked = True
            response = await answering(request, context)
        except (RegnumError, TimeoutError, grpc.aio.AioRpcError) as error:
            known = _known(error)
            code = known.code
            again = Again.of(known, lacked=0 if making is None else making.lacked, worked=worked)
            # (Its frames hold the request, and are not to hold themselves.)
            del known
        else:
            self._note(api, context.version, "NONE", began_s)
            return response
        if not is_waited_for(code):
            self._note(api, context.version, reason_of(code), began_s)
            return refuse(request, context, told(api.key, code))
        if not is_last:
            return again
        self._note(api, context.version, reason_of(code), began_s)
        return await for_caller(lambda: _waited_in_vain(api, request, context, refuse))


async def _read(api: Api, context: Context, frame: memoryview) -> tuple[Any, bool]:
    """The request, and whether one of its lists is too long."""
    head = context.head

    def large() -> tuple[Any, bool]:
        request = read_request(api, head, frame)
        return request, longest_array(request) > LIST_MAX

    try:
        return read_request(api, head, frame, items_max=ITEMS_AT_ONCE), False
    except TooManyItemsError:
        return await for_caller(large)


async def _written(api: Api, context: Context, response: Any, making: Answer | None) -> Buffers | None:
    """The frame of an answer, which is held from now on; None: none is waited for."""
    if response is None:
        return None

    def write() -> Buffers:
        return write_response(api, context.version, context.head.correlation_id, response)

    buffers = await for_caller(write) if is_longer(response, ITEMS_AT_ONCE) else write()
    if making is not None:
        making.made(buffers)
    return buffers


def _waited_in_vain(api: Api, request: Any, context: Context, refuse: Refusing) -> Any:
    """The refusal of a call that found no room. Raises RegnumError where it would read like an answer without any."""
    code = told(api.key, errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED)
    response, nothing = (refuse(request, context, one) for one in (code, errors_pb2.ERROR_CODE_NONE))
    # (Metadata of all topics, say, before version 13: its client would take the cluster for empty.)
    if write_response(api, context.version, 0, response) == write_response(api, context.version, 0, nothing):
        raise unsaid()
    return response


def _known(error: Exception) -> RegnumError:
    """The error that a handler's failure stands for, as at the other door (``interceptor``)."""
    if isinstance(error, RegnumError):
        return error
    if isinstance(error, grpc.aio.AioRpcError):
        return from_rpc_error(error)
    return RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "it took too long; try again")
