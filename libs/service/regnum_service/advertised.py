"""An address belongs to one live process of a role: what a process claims when it registers (decision 73).

Two processes that advertise one address would each get what is meant for the other. Host and port count as they are
written, for each name of a listener: several processes on one host, or behind one NAT, differ in the port; and one
address may be a client listener in one network and an internal one in another.
"""

from collections.abc import Mapping
from functools import partial

from regnum_coordination.recipes.membership import Claims
from regnum_model import paths
from regnum_model.nodes import Address, AddressNode, MalformedNodeError


def claims_of(folder: str, own: str, listeners: Mapping[str, Address]) -> Claims:
    """The claims of a process.

    Args:
        folder: of the nodes of its role: ``paths.BROKER_ADDRESSES`` and the like.
        own: its role and id, as in ``addressee``.
        listeners: what it advertises.
    """
    meant = {paths.advertised(folder, name, address): (name, address) for name, address in sorted(listeners.items())}
    return Claims(paths=tuple(meant), data=AddressNode(holder=own).encode(), taken=partial(_taken, meant, own))


def _taken(meant: Mapping[str, tuple[str, Address]], own: str, path: str, data: bytes) -> str:
    name, address = meant[path]
    try:
        holder = AddressNode.decode(data).holder
    except MalformedNodeError as error:
        return f"{path}, which {own} has to write, cannot be read ({error}); delete it in the store, then start again"
    return (
        f"{holder} advertises {address} as its {name} listener, and so does {own}: each would get what is meant for the"
        f" other. Stop {holder}, or start {own} with another --{name}-advertised (or --{name}-listen); the store knows"
        f" by {path}"
    )
