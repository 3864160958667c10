"""RegnumError as google.rpc.Status, and what the transport says by itself."""

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc.aio import AioRpcError, Metadata
from regnum.types.v1 import errors_pb2
from regnum_service.errors import ERRORS, RegnumError, reason_of
from regnum_service.status import from_rpc_error, to_status

DETAILS = "grpc-status-details-bin"


def failed(code: grpc.StatusCode, text: str = "text", details: bytes | None = None) -> AioRpcError:
    trailing = Metadata() if details is None else Metadata((DETAILS, details))
    return AioRpcError(code, Metadata(), trailing, text)


def sent(error: RegnumError) -> AioRpcError:
    status = to_status(error)
    return failed(error.traits.status, status.message, status.SerializeToString())


@pytest.mark.parametrize("code", [code for code in ERRORS if code != errors_pb2.ERROR_CODE_NONE], ids=reason_of)
def test_every_error_survives_the_wire(code):
    error = from_rpc_error(sent(RegnumError(code, "do this", metadata={"a": "b"})))
    assert (error.code, error.message, dict(error.metadata)) == (code, "do this", {"a": "b"})
    assert (error.retry_after_ms is not None) == ERRORS[code].retriable


def test_the_details_are_those_that_others_expect():
    status = to_status(RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "ask 2", retry_after_ms=1_500))
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(retry)
    assert (info.reason, info.domain) == ("NOT_CONTROLLER", "regnum")
    assert retry.retry_delay.ToMilliseconds() == 1_500


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE),
        (grpc.StatusCode.CANCELLED, errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT),
        (grpc.StatusCode.UNIMPLEMENTED, errors_pb2.ERROR_CODE_INVALID_REQUEST),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT),
        (grpc.StatusCode.UNKNOWN, errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_the_transport_says(code, expected):
    error = from_rpc_error(failed(code, "connection refused"))
    assert error.code == expected
    assert error.message.startswith("connection refused (")


@pytest.mark.parametrize("who", ["CLIENT: Received", "SERVER: Received", "CLIENT: Sent"])
def test_only_a_message_that_is_too_large_is_told_as_one(who):
    """Of metadata that are too large the outcome is unknown: those of an answer come after the call was carried out."""
    large = from_rpc_error(
        failed(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{who} message larger than max (67108865 vs. 67108864)")
    )
    assert (large.code, large.traits.retriable) == (errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, False)
    assert "send less" in large.message
    text = "Stream removed (received metadata size exceeds soft limit (8723 vs. 8192);  grpc-message:44B)"
    unknown = from_rpc_error(failed(grpc.StatusCode.RESOURCE_EXHAUSTED, text))
    assert (unknown.code, unknown.traits.retriable) == (errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, True)
    assert "the outcome is unknown" in unknown.message


def info(reason: str, domain: str) -> bytes:
    status = status_pb2.Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message="text")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=domain))
    return status.SerializeToString()


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        (b"\xff\xff", errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE),
        (b"", errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE),
        (info("NOT_CONTROLLER", "elsewhere.example"), errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE),
        (info("FROM_THE_FUTURE", "regnum"), errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR),
    ],
)
def test_details_that_are_not_ours_or_unknown(details, expected):
    assert from_rpc_error(failed(grpc.StatusCode.UNAVAILABLE, details=details)).code == expected


def test_an_error_without_a_call():
    assert from_rpc_error(grpc.RpcError("odd")).code == errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR
