"""Who makes a call, in the words in which a broker tells the controller for whom it speaks (KIP-590)."""

from regnum.election.v1 import controller_pb2
from regnum_service.access.identity import Caller


def original_caller(who: Caller, *, connection: str = "") -> controller_pb2.OriginalCaller:
    """The client; ``connection``: as gRPC names it, where the controller has calls of one connection take turns."""
    return controller_pb2.OriginalCaller(
        principal_type=who.principal.type,
        principal_name=who.principal.name,
        token_authenticated=who.principal.token_authenticated,
        client_host=who.host,
        connection=connection,
        encrypted=who.encrypted,
    )
