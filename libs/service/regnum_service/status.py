"""RegnumError to and from a gRPC status with google.rpc details.

A failed call carries ErrorInfo (reason = name of the ErrorCode without prefix, domain ``regnum``, metadata), and
RetryInfo where the error is retriable. What comes without ErrorInfo was made by the transport and gets the
nearest code.
"""

from typing import Final

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from regnum.types.v1 import errors_pb2

from regnum_service.errors import Code, RegnumError, UnansweredError, code_of, reason_of
from regnum_service.tls.advice import why_not_connected

DOMAIN: Final = "regnum"
"""ErrorInfo.domain of all our errors."""

RETRY_DELAY_MS: Final = 50
"""RetryInfo of a retriable error that gives no time of its own."""

_TRANSPORT: Final = {
    grpc.StatusCode.UNAVAILABLE: errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
    # A server that stops cancels what is still running.
    grpc.StatusCode.CANCELLED: errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
    grpc.StatusCode.INVALID_ARGUMENT: errors_pb2.ERROR_CODE_INVALID_REQUEST,
    grpc.StatusCode.UNIMPLEMENTED: errors_pb2.ERROR_CODE_INVALID_REQUEST,
    # For messages above the size limit (``_TOO_LARGE``), and for metadata above it: of the answer too, so that the call
    # was carried out.
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
}

_TOO_LARGE: Final = "message larger than max"
"""What gRPC says of a message above the size limit."""

_ADVICE: Final = {
    grpc.StatusCode.UNAVAILABLE: "check that the process runs and that the address is right",
    grpc.StatusCode.CANCELLED: "the server is stopping; try another one",
    grpc.StatusCode.DEADLINE_EXCEEDED: "the outcome is unknown; look before repeating, or allow more time",
    grpc.StatusCode.UNIMPLEMENTED: "this listener does not serve the call, or is of a release that does not know it; "
    "check the address and the release",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "the outcome is unknown; look before repeating",
}


_UNANSWERED: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
)
"""How the transport says that there was no answer."""


def to_status(error: RegnumError) -> status_pb2.Status:
    """The google.rpc.Status that tells a caller of this error."""
    traits = error.traits
    status = status_pb2.Status(code=traits.status.value[0], message=error.message)
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(reason=reason_of(error.code), domain=DOMAIN, metadata=dict(error.metadata))
    )
    if traits.retriable:
        delay_ms = RETRY_DELAY_MS if error.retry_after_ms is None else error.retry_after_ms
        delay = Duration()
        delay.FromMilliseconds(delay_ms)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def from_rpc_error(error: grpc.RpcError) -> RegnumError:
    """The error that a failed call stands for; transport failures included."""
    return _from_details(error) or _from_transport(error)


def _from_details(error: grpc.RpcError) -> RegnumError | None:
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]
    except (ValueError, DecodeError, AttributeError):
        # Details that contradict the call's own status, or no call at all: not ours.
        return None
    if status is None:
        return None
    return from_status(status)


def from_status(status: status_pb2.Status) -> RegnumError | None:
    """The error that a status of ours stands for; None: it is not one of ours."""
    code: Code | None = None
    metadata: dict[str, str] = {}
    retry_after_ms: int | None = None
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        retry = error_details_pb2.RetryInfo()
        try:
            if detail.Unpack(info) and info.domain == DOMAIN:
                code = code_of(info.reason) or errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR
                metadata = dict(info.metadata)
            elif detail.Unpack(retry):
                retry_after_ms = retry.retry_delay.ToMilliseconds()
        except DecodeError:
            continue
    if code is None:
        return None
    return RegnumError(code, status.message, metadata=metadata, retry_after_ms=retry_after_ms)


def _from_transport(error: grpc.RpcError) -> RegnumError:
    status = error.code() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None
    details = error.details() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None
    if status is None:
        return RegnumError(errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, str(error) or "the call failed")
    text = details or status.name
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in text.lower():
        return RegnumError(errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, f"{text} (send less in one message)")
    tls = why_not_connected(text)
    advice = tls or _ADVICE.get(status, "see the server's log")
    code = _TRANSPORT.get(status, errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR)
    # Where TLS ended it, somebody is there.
    kind = UnansweredError if status in _UNANSWERED and tls is None else RegnumError
    return kind(code, f"{text} ({advice})")
