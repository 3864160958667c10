"""What this door refuses by itself."""

from regnum.types.v1 import errors_pb2
from regnum_service.errors import Code, RegnumError


def no_transactions() -> RegnumError:
    """With an error that ends the attempt: clients try most others again, for ever."""
    return RegnumError(
        errors_pb2.ERROR_CODE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not offered at this listener"
    )


def is_waited_for(code: Code) -> bool:
    """Whether a client is not told of it: the door waits, and makes the call again."""
    return code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
