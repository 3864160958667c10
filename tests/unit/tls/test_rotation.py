"""Certificates are replaced while calls go on, and nobody who calls notices."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_model.nodes import Address
from regnum_service.access.identity import caller
from regnum_service.access.listener import ListenerAccess
from regnum_service.access.principal_mapping import MappingRules
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor
from regnum_service.tls.channels import opener
from regnum_service.tls.files import TlsFiles, TlsFilesError, WatchedFiles
from regnum_service.tls.server import ServerTls, principals_by
from regnum_testing.tls_cases import HOST, Certificates, Leaf
from regnum_testing.waiting import DEADLINE_S, until

RULES = MappingRules.parse("RULE:^CN=([^,]+),.*$/$1/")


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Shown:
    """A certificate and its key at paths that stay the same."""

    def __init__(self, folder: Path, name: str) -> None:
        self.leaf = Leaf(folder / f"{name}.pem", folder / f"{name}.key")

    def become(self, leaf: Leaf, *, key_too: bool = True) -> None:
        for target, source in (
            (self.leaf.certificate, leaf.certificate),
            *(((self.leaf.key, leaf.key),) if key_too else ()),
        ):
            beside = target.with_name(f"{target.name}.new")
            beside.write_bytes(source.read_bytes())
            beside.replace(target)


class Controller(controller_pb2_grpc.ControllerServiceServicer, controller_pb2_grpc.LifelineServiceServicer):
    """Notes who calls."""

    def __init__(self) -> None:
        self.callers: list[str] = []

    async def ControlledShutdown(self, request, context):  # noqa: N802 - the name in the proto
        self.callers.append(caller().principal.name)
        return controller_pb2.ControlledShutdownResponse()

    async def BrokerLifeline(self, request_iterator, context):  # noqa: N802 - the name in the proto
        async for request in request_iterator:
            yield controller_pb2.BrokerLifelineResponse(probe=request.beat)


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor("test")
    yield supervisor
    await supervisor.unwind()


async def serve(supervisor: Supervisor, controller: Controller, files: WatchedFiles) -> Address:
    server = GrpcServer(
        Address(host=HOST, port=0),
        [
            ServiceRegistration(
                name="regnum.election.v1.ControllerService",
                servicer=controller,
                add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
            ),
            ServiceRegistration(
                name="regnum.election.v1.LifelineService",
                servicer=controller,
                add_to_server=controller_pb2_grpc.add_LifelineServiceServicer_to_server,
            ),
        ],
        supervisor=supervisor,
        access=ListenerAccess(tls=ServerTls(files=files, requires_certificate=True, principal_of=principals_by(RULES))),
    )
    await server.start()
    supervisor.defer("server", lambda: server.stop(0))
    return server.address


async def test_under_load_no_call_fails_a_stream_goes_on_and_both_sides_show_what_is_new(supervisor, tmp_path) -> None:
    certificates, clock, controller = Certificates(tmp_path), Hand(), Controller()
    server, client = Shown(tmp_path, "server"), Shown(tmp_path, "client")
    server.become(certificates.right())
    client.become(certificates.right("client", common_name="before"))
    both = tmp_path / "both.pem"
    both.write_bytes(certificates.ca.read_bytes() + certificates.other_ca.read_bytes())
    served = WatchedFiles(certificates.files(server.leaf), monotonic_s=clock)
    shown = WatchedFiles(certificates.files(client.leaf, ca=both), monotonic_s=clock)
    address = await serve(supervisor, controller, served)
    channel = opener(shown)(address)
    stub, lifelines = (
        controller_pb2_grpc.ControllerServiceStub(channel),
        controller_pb2_grpc.LifelineServiceStub(channel),
    )
    done = asyncio.Event()

    async def load() -> int:
        calls = 0
        while not done.is_set():
            await stub.ControlledShutdown(controller_pb2.ControlledShutdownRequest(), timeout=DEADLINE_S)
            calls += 1
        return calls

    loads = [asyncio.create_task(load()) for _ in range(4)]
    stream = lifelines.BrokerLifeline()
    await stream.write(controller_pb2.BrokerLifelineRequest(beat=1))
    assert (await stream.read()).probe == 1
    await until(lambda: len(controller.callers) > 20, "calls go through")

    # The server's is of another authority now: whoever still got the old one would not notice, so somebody new asks.
    server.become(certificates.of_another_authority())
    client.become(certificates.right("client", common_name="after"))
    clock.now_s += 10.0
    await until(lambda: controller.callers[-1] == "after", "calls show the new certificate")
    assert served.version == 2, "the new connection was shown what is new"
    newcomer = WatchedFiles(certificates.files(client.leaf, ca=certificates.other_ca))
    async with opener(newcomer)(address) as another:
        await controller_pb2_grpc.ControllerServiceStub(another).ControlledShutdown(
            controller_pb2.ControlledShutdownRequest(), timeout=DEADLINE_S
        )
    await stream.write(controller_pb2.BrokerLifelineRequest(beat=2))
    assert (await stream.read()).probe == 2, "the stream is where it was"
    done.set()
    assert sum(await asyncio.gather(*loads)) > 20
    stream.cancel()
    await channel.close()


def test_what_does_not_fit_is_told_once_and_not_used_until_it_does(tmp_path) -> None:
    certificates, clock, complaints = Certificates(tmp_path), Hand(), []
    shown = Shown(tmp_path, "shown")
    shown.become(certificates.right())
    files = WatchedFiles(certificates.files(shown.leaf), complain=complaints.append, monotonic_s=clock)
    before = files.pem
    # As somebody does it who copies one file after the other.
    after = certificates.right("localhost")
    shown.become(after, key_too=False)
    for _ in range(3):
        clock.now_s += 1.0
        assert files.check() == 1
    assert files.pem == before
    assert len(complaints) == 1
    assert "belong together" in complaints[0]
    shown.become(after)
    assert files.check() == 1, "not before a second has passed"
    clock.now_s += 1.0
    assert files.check() == 2
    assert files.pem.certificate == after.certificate.read_bytes()


def test_files_that_are_gone_stay_in_use(tmp_path) -> None:
    certificates, clock, complaints = Certificates(tmp_path), Hand(), []
    leaf = certificates.right()
    files = WatchedFiles(certificates.files(leaf), complain=complaints.append, monotonic_s=clock)
    leaf.key.unlink()
    clock.now_s += 1.0
    assert files.check() == 1
    assert files.pem.key is not None
    assert "cannot read" in complaints[0]


def test_a_token_whose_mode_is_mended_later_is_taken_up_and_each_reason_is_told_once(tmp_path) -> None:
    # A change of rights or owner moves nothing that a look shows; so it is with a key that others could not read.
    clock, complaints = Hand(), []
    token, renewed = tmp_path / "token", tmp_path / "renewed"
    token.write_bytes(b"a" * 22 + b"." + b"b" * 86)
    token.chmod(0o600)
    files = WatchedFiles(TlsFiles(token=token), complain=complaints.append, monotonic_s=clock)

    def look() -> int:
        clock.now_s += 1.0
        return files.check()

    renewed.write_bytes(b"c" * 22 + b"." + b"d" * 86)
    renewed.chmod(0o644)
    renewed.replace(token)
    assert [look() for _ in range(3)] == [1, 1, 1]
    assert [complaint.partition(";")[0] for complaint in complaints] == [
        f"others than its owner and this process' own group may read or write {token}"
    ]
    token.chmod(0o600)
    assert [look() for _ in range(3)] == [2, 2, 2]
    assert files.pem.token == b"c" * 22 + b"." + b"d" * 86
    token.write_bytes(b"no token")
    look()
    token.unlink()
    look()
    assert ["holds no credential" in complaints[1], "cannot read" in complaints[2], len(complaints)] == [True, True, 3]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda files: files.key.unlink(), "cannot read"),
        (lambda files: files.key.write_text("no key"), "belong together"),
        (lambda files: files.ca.write_text("no authority"), "no certificates of authorities"),
        (lambda files: files.certificate.write_bytes(files.ca.read_bytes()), "belong together"),
        (lambda files: files.ca.write_bytes(b"-" * (4 * 1024 * 1024 + 1)), "more than"),
    ],
)
def test_files_that_are_no_use_are_refused_at_the_start_by_name(tmp_path, spoil, words: str) -> None:
    certificates = Certificates(tmp_path)
    files = certificates.files(certificates.right())
    spoil(files)
    with pytest.raises(TlsFilesError, match=words) as refused:
        WatchedFiles(files)
    assert str(tmp_path) in str(refused.value)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path) -> None:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    leaf = Certificates(tmp_path).right()
    key = load_pem_private_key(leaf.key.read_bytes(), password=None)
    leaf.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    with pytest.raises(TlsFilesError, match="has a password"):
        WatchedFiles(TlsFiles(certificate=leaf.certificate, key=leaf.key))


def test_a_certificate_without_its_key_is_refused(tmp_path) -> None:
    leaf = Certificates(tmp_path).right()
    with pytest.raises(TlsFilesError, match="no TLS key"):
        WatchedFiles(TlsFiles(certificate=leaf.certificate))


def test_a_key_is_in_no_representation(tmp_path) -> None:
    certificates = Certificates(tmp_path)
    files = WatchedFiles(certificates.files(certificates.right()))
    assert "PRIVATE" not in f"{files.pem!r}{files.pem}{vars(files)!r}"
