"""Who has no right certificate is not let in, on either side, and hears or leaves in the log why."""

import asyncio
import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service.access.identity import Caller, caller
from regnum_service.access.listener import ListenerAccess, ListenerLimits
from regnum_service.access.principal_mapping import MappingRules
from regnum_service.channel import open_channel
from regnum_service.errors import RegnumError
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.status import from_rpc_error
from regnum_service.supervisor import Supervisor
from regnum_service.tls.channels import opener
from regnum_service.tls.files import TlsFiles, WatchedFiles
from regnum_service.tls.server import ServerTls, principals_by
from regnum_testing.tls_cases import HOST, Certificates, Leaf
from regnum_testing.waiting import DEADLINE_S

REQUEST_BYTES_MAX = 4 * 1024 * 1024
REQUEST = controller_pb2.ControlledShutdownRequest()
RULES = MappingRules.parse(r"RULE:^CN=([^,\\]+),.*$/$1/L")


class Controller(controller_pb2_grpc.ControllerServiceServicer):
    """Notes who calls."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []

    async def ControlledShutdown(self, request, context):  # noqa: N802 - the name in the proto
        self.callers.append(caller())
        return controller_pb2.ControlledShutdownResponse()


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


class Served:
    """Servers of a test."""

    def __init__(self) -> None:
        self.supervisor = Supervisor("test")
        self.controller = Controller()

    async def start(
        self, files: TlsFiles | None, *, required: bool = True, limits: ListenerLimits | None = None
    ) -> Address:
        tls = None
        if files is not None:
            tls = ServerTls(files=WatchedFiles(files), requires_certificate=required, principal_of=principals_by(RULES))
        server = GrpcServer(
            Address(host=HOST, port=0),
            [
                ServiceRegistration(
                    name="regnum.election.v1.ControllerService",
                    servicer=self.controller,
                    add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
                )
            ],
            supervisor=self.supervisor,
            request_bytes_max=REQUEST_BYTES_MAX,
            access=ListenerAccess(tls=tls, limits=limits or ListenerLimits()),
        )
        await server.start()
        self.supervisor.defer("server", lambda: server.stop(0))
        return server.address


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    yield served
    await served.supervisor.unwind()


async def refusal(address: Address, files: TlsFiles | None) -> RegnumError:
    open_one = open_channel if files is None else opener(WatchedFiles(files))
    async with open_one(address) as channel:
        stub = controller_pb2_grpc.ControllerServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ControlledShutdown(REQUEST, timeout=DEADLINE_S)
    return from_rpc_error(refused.value)


async def call(address: Address, files: TlsFiles) -> None:
    async with opener(WatchedFiles(files))(address) as channel:
        await controller_pb2_grpc.ControllerServiceStub(channel).ControlledShutdown(REQUEST, timeout=DEADLINE_S)


async def test_both_sides_with_right_certificates_talk_and_the_client_is_who_its_certificate_says(
    served, certificates
) -> None:
    address = await served.start(certificates.files(certificates.right()))
    await call(address, certificates.files(certificates.right("ann.example", common_name="Ann")))
    who = served.controller.callers[0]
    assert (who.principal.name, who.host, who.encrypted) == ("ann", HOST, True)


async def test_where_no_certificate_is_asked_for_a_client_without_is_nobody(served, certificates) -> None:
    address = await served.start(certificates.files(certificates.right()), required=False)
    await call(address, certificates.files(None))
    assert (served.controller.callers[0].principal.name, served.controller.callers[0].encrypted) == ("ANONYMOUS", True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Certificates.of_another_authority, "signed by no authority of --tls-ca"),
        (lambda certificates: certificates.right("example.org"), "not for this host"),
        (Certificates.expired, "has expired"),
        (Certificates.early, "not valid yet"),
        (Certificates.self_signed, "signed by nobody but itself"),
    ],
    ids=["wrong authority", "wrong host", "expired", "not valid yet", "self-signed"],
)
async def test_a_server_with_a_wrong_certificate_is_refused_and_the_client_says_why(
    served, certificates, make: Callable[[Certificates], Leaf], words: str
) -> None:
    address = await served.start(certificates.files(make(certificates)))
    refused = await refusal(address, certificates.files(certificates.right("client", common_name="client")))
    assert refused.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    assert words in refused.message
    assert served.controller.callers == []


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda _: None, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (Certificates.of_another_authority, "unable to get local issuer certificate"),
        (Certificates.expired, "certificate has expired"),
        (Certificates.early, "certificate is not yet valid"),
        (Certificates.self_signed, "self signed certificate"),
    ],
    ids=["none", "wrong authority", "expired", "not valid yet", "self-signed"],
)
async def test_a_client_with_a_wrong_certificate_is_refused_and_the_servers_log_says_why(
    served, certificates, make: Callable[[Certificates], Leaf | None], reason: str, capfd
) -> None:
    address = await served.start(certificates.files(certificates.right()))
    refused = await refusal(address, certificates.files(make(certificates)))
    assert refused.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    assert "a certificate, or another one than was shown" in refused.message
    assert served.controller.callers == []
    assert reason in capfd.readouterr().err


async def test_plaintext_and_tls_do_not_meet_and_both_say_so(served, certificates) -> None:
    secure = await served.start(certificates.files(certificates.right()))
    plain = await served.start(None)
    assert "it may want TLS" in (await refusal(secure, None)).message
    refused = await refusal(plain, certificates.files(certificates.right("client", common_name="client")))
    assert "does not speak TLS" in refused.message
    assert served.controller.callers == []


async def test_a_certificate_that_no_rule_knows_is_no_principal(served, certificates) -> None:
    address = await served.start(certificates.files(certificates.right()))
    refused = await refusal(address, certificates.files(certificates.right("x", common_name="a,b")))
    assert refused.code == errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED
    assert "no principal mapping rule" in refused.message
    assert served.controller.callers == []


@pytest.mark.parametrize(
    ("version", "let_in"),
    [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)],
)
async def test_nothing_older_than_tls_1_2_is_spoken(served, certificates, version, let_in: bool) -> None:
    address = await served.start(certificates.files(certificates.right()), required=False)
    context = ssl.create_default_context(cafile=certificates.ca)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    # Or OpenSSL itself would not try the old one.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.set_alpn_protocols(["h2"])

    def shake_hands() -> str | None:
        with socket.create_connection((address.host, address.port), DEADLINE_S) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=HOST) as secure:
                    return secure.version()
            except OSError:
                return None

    assert await asyncio.to_thread(shake_hands) == (version.name.replace("_", ".") if let_in else None)


@pytest.mark.parametrize("secure", [True, False])
async def test_who_connects_and_says_nothing_is_hung_up_on(served, certificates, secure: bool) -> None:
    files = certificates.files(certificates.right()) if secure else None
    address = await served.start(files, limits=ListenerLimits(handshake_timeout_s=0.5))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    async with asyncio.timeout(DEADLINE_S):
        # In plaintext gRPC says its settings first.
        said = await reader.read()
    writer.close()
    assert reader.at_eof()
    assert bool(said) is not secure


async def test_metadata_beyond_the_limit_and_compressed_messages_are_refused_and_others_go_on(
    served, certificates
) -> None:
    address = await served.start(certificates.files(certificates.right()), limits=ListenerLimits())
    shown = WatchedFiles(certificates.files(certificates.right("client", common_name="client")))
    async with opener(shown)(address) as channel:
        stub = controller_pb2_grpc.ControllerServiceStub(channel)
        for _ in range(5):
            # Every time: between gRPC's two limits it would be a matter of chance.
            with pytest.raises(grpc.aio.AioRpcError) as large:
                await stub.ControlledShutdown(REQUEST, timeout=DEADLINE_S, metadata=(("x-large", "x" * 17_000),))
            assert large.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await stub.ControlledShutdown(REQUEST, timeout=DEADLINE_S, metadata=(("x-small", "x" * 12_000),))
        bomb = channel.unary_unary("/regnum.election.v1.ControllerService/ControlledShutdown")
        with pytest.raises(grpc.aio.AioRpcError) as unpacked:
            # 4 KiB on the wire.
            await bomb(bytes(REQUEST_BYTES_MAX + 1), timeout=DEADLINE_S, compression=grpc.Compression.Gzip)
        assert unpacked.value.code() is grpc.StatusCode.UNIMPLEMENTED
        await stub.ControlledShutdown(REQUEST, timeout=DEADLINE_S)
    assert len(served.controller.callers) == 2
