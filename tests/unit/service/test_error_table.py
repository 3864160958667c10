"""The one table of errors."""

import grpc
import pytest
from regnum.types.v1 import errors_pb2
from regnum.types.v1.errors_pb2 import ErrorCode
from regnum_service.errors import ERRORS, ExitStatus, RegnumError, code_of, reason_of, traits_of


def test_every_error_code_is_in_the_table():
    assert set(ERRORS) == set(ErrorCode.values())


def test_only_none_is_ok_and_done():
    for code, traits in ERRORS.items():
        is_none = code == errors_pb2.ERROR_CODE_NONE
        assert (traits.status is grpc.StatusCode.OK) == is_none
        assert (traits.exit_status is ExitStatus.DONE) == is_none


def test_what_asks_for_new_metadata_may_be_tried_again():
    assert all(traits.retriable for traits in ERRORS.values() if traits.refresh_metadata)


def test_an_invalid_request_is_never_retriable():
    wrong = [traits for traits in ERRORS.values() if traits.status is grpc.StatusCode.INVALID_ARGUMENT]
    assert wrong
    assert not any(traits.retriable for traits in wrong)
    assert all(traits.exit_status is ExitStatus.WRONG_USE for traits in wrong)


@pytest.mark.parametrize(
    "code",
    [
        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
        errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR,
    ],
)
def test_the_outcome_may_be_unknown(code):
    assert not traits_of(code).outcome_known


def test_a_refusal_before_the_append_has_a_known_outcome():
    assert traits_of(errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS).outcome_known
    assert traits_of(errors_pb2.ERROR_CODE_NOT_CONTROLLER).outcome_known


def test_reasons_and_codes_are_inverse():
    for code in ErrorCode.values():
        assert code_of(reason_of(code)) == code
    assert reason_of(errors_pb2.ERROR_CODE_NOT_CONTROLLER) == "NOT_CONTROLLER"
    assert code_of("NEVER_HEARD_OF") is None


def test_a_code_of_a_newer_peer_is_an_unexpected_failure():
    assert traits_of(31_999) is ERRORS[errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR]  # type: ignore[arg-type]
    assert repr(RegnumError(31_999, "x")) == "RegnumError(31999, 'x')"  # type: ignore[arg-type]


def test_metadata_of_an_error_is_a_copy():
    metadata = {"id": "1"}
    error = RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "ask 1", metadata=metadata)
    metadata["id"] = "2"
    assert error.metadata == {"id": "1"}
    assert str(error) == "ask 1"
    assert error.traits.refresh_metadata
