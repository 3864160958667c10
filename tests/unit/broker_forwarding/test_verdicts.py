"""What a client hears of a call that was passed on and not answered."""

import pytest
from regnum.types.v1 import errors_pb2
from regnum.types.v1.errors_pb2 import ErrorCode
from regnum_broker.forwarding.verdicts import Verdict, of_call, of_envelope
from regnum_service.errors import traits_of

TOLD = {
    errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
    errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION,
    errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE,
}


@pytest.mark.parametrize("code", ErrorCode.values())
def test_what_is_sent_again_is_known_not_to_have_been_done_or_is_done_once(code: ErrorCode.ValueType) -> None:
    if of_envelope(code, repeatable=False) is Verdict.AGAIN or of_call(code) is Verdict.AGAIN:
        assert traits_of(code).outcome_known
    again = of_envelope(code, repeatable=True) is Verdict.AGAIN
    assert again == (
        code
        in {
            errors_pb2.ERROR_CODE_NOT_CONTROLLER,
            errors_pb2.ERROR_CODE_REBOOTSTRAP_REQUIRED,
            errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
            errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
        }
    )


@pytest.mark.parametrize("code", ErrorCode.values())
def test_of_envelopes_a_client_hears_what_is_of_its_own_making_and_no_more(code: ErrorCode.ValueType) -> None:
    if of_envelope(code, repeatable=True) is Verdict.TELL:
        assert code in TOLD
    if code in {
        errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED,
        errors_pb2.ERROR_CODE_PRINCIPAL_DESERIALIZATION_FAILURE,
        errors_pb2.ERROR_CODE_INVALID_REQUEST,
        errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED,
    }:
        assert of_envelope(code, repeatable=True) is Verdict.HIDE


@pytest.mark.parametrize("code", ErrorCode.values())
def test_of_its_own_call_a_client_hears_everything_but_where_the_controller_was_not(code: ErrorCode.ValueType) -> None:
    expected = Verdict.AGAIN if code == errors_pb2.ERROR_CODE_NOT_CONTROLLER else Verdict.TELL
    assert of_call(code) is expected
