"""How often one address may try to sign in. Pure.

Goals: guessing tokens costs the cluster next to nothing, and locks out no visitor at another address. (What proves a
token has 512 bits: the bound is for the cost of tries, and not against a right guess.)

Algorithm: each address has a bucket of BURST tries, which gains one every EVERY_S; a sign-in that works costs one as
well. An IPv6 network of /64 counts as one address: a single machine has as many as it likes there. Of more than
ADDRESSES_MAX the one that tried longest ago is forgotten; with so many addresses in hand, what bounds an attack is how
many tries are checked at a time.
"""

from collections import OrderedDict
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

BURST: Final = 10
"""Tries that an address may make at once."""
EVERY_S: Final = 6.0
"""Then one in so long."""
ADDRESSES_MAX: Final = 4_096
"""Addresses that are remembered."""
_IPV6_BITS: Final = 64


class Attempts:
    """The tries of all addresses."""

    def __init__(self) -> None:
        self._buckets: Final[OrderedDict[str, tuple[float, float]]] = OrderedDict()
        """Tries that are left, and when that was so."""

    def take(self, address: str, now_s: float) -> float:
        """Take one try. Returns how many seconds it has to wait, without taking it; 0.0: it was taken."""
        network = _network_of(address)
        left, at_s = self._buckets.pop(network, (float(BURST), now_s))
        left = min(float(BURST), left + (now_s - at_s) / EVERY_S)
        wait_s = 0.0 if left >= 1 else (1 - left) * EVERY_S
        self._buckets[network] = (left if wait_s else left - 1, now_s)
        if len(self._buckets) > ADDRESSES_MAX:
            self._buckets.popitem(last=False)
        return wait_s

    def __len__(self) -> int:
        """Addresses that are remembered."""
        return len(self._buckets)


def _network_of(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    mapped = parsed.ipv4_mapped
    return str(mapped or IPv6Network((int(parsed), _IPV6_BITS), strict=False))
