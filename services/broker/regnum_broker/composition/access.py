"""What keeps up with who may do what: the rules of access, and the delegation tokens."""

from regnum_broker.composition.parts import BrokerParts


def start_access(parts: BrokerParts) -> None:
    """Follow the rules and the tokens in the store, and end streams with the tokens that opened them."""
    parts.supervisor.start("access rules", parts.access.run(parts.sessions.wait_store))
    parts.tokens.start(parts.supervisor, parts.sessions.wait_store)
