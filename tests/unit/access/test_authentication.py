"""Who makes a call is known to everything that runs for it, and to nothing else."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_model.principals import NOBODY, Principal
from regnum_service.access.authentication import REMEMBERED_MAX, TOKEN_METADATA, Authentication, host_of
from regnum_service.access.authorization import Denials
from regnum_service.access.identity import UNKNOWN, Caller, caller
from regnum_service.access.listener import ListenerAccess
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.muting import Muting
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.status import from_rpc_error
from regnum_service.supervisor import Supervisor
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.waiting import DEADLINE_S

ALICE = Principal("alice", token_authenticated=True)


class Controller(controller_pb2_grpc.ControllerServiceServicer):
    """Notes who calls, in the handler and in a task of it."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []

    async def ControlledShutdown(self, request, context):  # noqa: N802 - the name in the proto
        async def later() -> None:
            # One turn: the task goes on when the call's own code has.
            await asyncio.sleep(0)
            self.callers.append(caller())

        self.callers.append(caller())
        await asyncio.create_task(later())
        return controller_pb2.ControlledShutdownResponse()


class Lifeline(controller_pb2_grpc.LifelineServiceServicer):
    def __init__(self, callers: list[Caller]) -> None:
        self._callers = callers

    async def BrokerLifeline(self, request_iterator, context):  # noqa: N802 - the name in the proto
        async for request in request_iterator:
            self._callers.append(caller())
            yield controller_pb2.BrokerLifelineResponse(probe=request.beat)


class Tokens:
    """Knows one token, which is its owner's name."""

    def check(self, metadata) -> Principal | None:
        shown = dict(metadata).get(TOKEN_METADATA)
        if shown is None:
            return None
        if shown != "alice":
            raise RegnumError(errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED, "no such token")
        return ALICE


class Audit:
    """An audit log that keeps who was not believed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def unauthenticated(self, who: Caller, error: RegnumError, *, call: str) -> None:
        self.lines.append(f"{who.name_and_place} {call}: {error.message}")


class Call:
    """A call as gRPC shows it."""

    def __init__(self, peer: str, subject: str = "", metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._peer = peer
        self._subject = subject.encode()
        self._metadata = metadata

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        if not self._subject:
            return {"transport_security_type": [b"ssl"]}
        return {"x509_pem_cert": [b"certificate of " + self._subject], "x509_subject": [self._subject]}


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor("test")
    yield supervisor
    await supervisor.unwind()


async def served(supervisor: Supervisor, servicer: Controller, *, gated: bool, access: ListenerAccess) -> GrpcServer:
    server = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [
            ServiceRegistration(
                name="regnum.election.v1.ControllerService",
                servicer=servicer,
                add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
            ),
            ServiceRegistration(
                name="regnum.election.v1.LifelineService",
                servicer=Lifeline(servicer.callers),
                add_to_server=controller_pb2_grpc.add_LifelineServiceServicer_to_server,
            ),
        ],
        supervisor=supervisor,
        gates=(Muting(SystemClock()),) if gated else (),
        listener="internal",
        access=access,
    )
    await server.start()
    supervisor.defer("server", lambda: server.stop(0))
    return server


@pytest.mark.parametrize("gated", [False, True])
async def test_handlers_their_tasks_and_streams_know_who_calls_and_from_where(supervisor, gated) -> None:
    servicer = Controller()
    server = await served(supervisor, servicer, gated=gated, access=ListenerAccess())
    async with open_channel(server.address) as channel:
        request = controller_pb2.ControlledShutdownRequest()
        await controller_pb2_grpc.ControllerServiceStub(channel).ControlledShutdown(request, timeout=DEADLINE_S)
        stream = controller_pb2_grpc.LifelineServiceStub(channel).BrokerLifeline(
            iter([controller_pb2.BrokerLifelineRequest()]), timeout=DEADLINE_S
        )
        assert len([answer async for answer in stream]) == 1
    assert servicer.callers == [Caller(principal=NOBODY, host="127.0.0.1", listener="internal")] * 3
    assert caller() is UNKNOWN


async def test_a_token_without_tls_is_refused_and_not_used(supervisor) -> None:
    servicer, metrics, audit = Controller(), Metrics(), Audit()
    access = ListenerAccess(tokens=Tokens(), denials=Denials(audit, metrics))  # type: ignore[arg-type]
    server = await served(supervisor, servicer, gated=False, access=access)
    async with open_channel(server.address) as channel:
        stub = controller_pb2_grpc.ControllerServiceStub(channel)
        request = controller_pb2.ControlledShutdownRequest()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ControlledShutdown(request, timeout=DEADLINE_S, metadata=((TOKEN_METADATA, "alice"),))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert from_rpc_error(refused.value).code == errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED
        assert "alice" not in str(refused.value.details())
        assert servicer.callers == []
        await stub.ControlledShutdown(request, timeout=DEADLINE_S)
    assert {who.principal for who in servicer.callers} == {NOBODY}
    (line,) = audit.lines
    assert line.startswith(
        "User:ANONYMOUS at 127.0.0.1 ControllerService/ControlledShutdown: a delegation token came over"
    )
    counted = next(one for one in metrics.read() if one.instrument is instruments.AUTHENTICATION_FAILURES)
    assert list(counted.numbers) == [(("internal", "SASL_AUTHENTICATION_FAILED"), 1)]


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:5", "10.0.0.1"),
        ("ipv6:[::1]:5", "::1"),
        ("ipv6:%5B::1%5D:5", "::1"),
        ("ipv6:%5B2001:db8::7%5D:65535", "2001:db8::7"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:5", "10.0.0.1"),
        ("unix:/tmp/socket", ""),
        ("unknown", ""),
        ("", ""),
    ],
)
def test_the_host_is_the_address_however_grpc_writes_it(peer: str, host: str) -> None:
    assert host_of(peer) == host
    assert Authentication().caller_of(Call(peer)).host == host


def test_over_tls_a_certificate_says_who_calls_and_without_one_it_is_nobody() -> None:
    authentication = Authentication("client", encrypted=True, principal_of=lambda subject: Principal(subject.lower()))
    assert authentication.caller_of(Call("ipv4:10.0.0.1:5", "CN=Ann")) == Caller(
        principal=Principal("cn=ann"), host="10.0.0.1", listener="client", encrypted=True, subject="CN=Ann"
    )
    assert authentication.caller_of(Call("ipv4:10.0.0.1:6")).principal == NOBODY


def test_who_comes_after_another_from_the_same_address_and_port_is_not_taken_for_him() -> None:
    authentication = Authentication(encrypted=True)
    place = "ipv4:10.0.0.1:5"
    names = [authentication.caller_of(Call(place, subject)).principal for subject in ("CN=ann", "", "CN=ben", "CN=ann")]
    assert names == [Principal("CN=ann"), NOBODY, Principal("CN=ben"), Principal("CN=ann")]


def test_a_token_goes_before_a_certificate_and_a_wrong_one_is_no_certificate() -> None:
    authentication = Authentication(encrypted=True, tokens=Tokens())
    shown = Call("ipv4:10.0.0.1:5", "CN=ann", ((TOKEN_METADATA, "alice"),))
    assert authentication.caller_of(shown).principal == ALICE
    assert authentication.caller_of(Call("ipv4:10.0.0.1:5", "CN=ann")).principal == Principal("CN=ann")
    with pytest.raises(RegnumError, match="no such token"):
        authentication.caller_of(Call("ipv4:10.0.0.1:5", "CN=ann", ((TOKEN_METADATA, "other"),)))


def test_what_is_remembered_of_callers_is_bounded() -> None:
    authentication = Authentication()
    for number in range(REMEMBERED_MAX + 10):
        authentication.caller_of(Call(f"ipv4:10.{number >> 16}.{number >> 8 & 255}.{number & 255}:5"))
    assert len(authentication._known) == 10


def test_certificates_are_not_kept_with_the_callers() -> None:
    authentication = Authentication(encrypted=True)
    for number in range(100):
        authentication.caller_of(Call(f"ipv4:10.0.0.1:{number + 1}", "CN=" + "x" * 10_000))
    kept = [part for key in authentication._known for part in key]
    assert len(kept) == 200
    assert max(map(len, kept)) <= 32
