"""What clients do in a time, against what quotas allow them (KIP-13, KIP-55, KIP-124). Belongs to the event loop.

Goals: each broker decides by itself and at once; nobody is refused, but told to wait; memory is bounded whoever comes.

Algorithm: for each of the three rates, the quotas of the eight levels (``regnum_model.quota_matching``) say whose
account a caller draws on; each account is a rate over sliding windows. Only those with a quota have accounts. An
account that was not used for IDLE_S is dropped, and of more than ACCOUNTS_MAX the one that was not used for the longest
time: whoever comes back begins anew, as after a restart. A quota that changes applies to what was measured before.

Bytes are owed: who was told to wait owes until that time is over, also when the windows have forgotten what he took,
and whichever connection asks. Else a large answer every eleven windows, on a new connection each, would pass a small
quota. What is sent is owed by the entity and by the connection that it came by (``connection_shares``). An account that
stands against another bound by now owes what is measured.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Final, NamedTuple

from regnum_model.bucket import Windows
from regnum_model.quota_matching import BucketKey, levels
from regnum_model.quotas import (
    CLIENT_RATES,
    DEFAULT_WINDOWS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    QuotaTable,
)

from regnum_broker.limits.connection_shares import ConnectionShares
from regnum_broker.limits.rates import WAIT_S_MAX, SampledRate

ACCOUNTS_MAX: Final = 20_000
"""Accounts of one rate."""
IDLE_S: Final = 3_600.0
"""For so long an account is kept that nobody uses (as in Kafka)."""
LOOKED_AT: Final = 2
"""Accounts that are looked at with each new one, whether they can be dropped: so the old ones go as new ones come."""

SHARED_MAX: Final = 2_000
"""Entities whose connections share; of more, the one that was not heard of for the longest time begins anew."""

SHARES_MAX: Final = 20_000
"""Connections that share, of all entities together, whenever these are looked through: a client may send under as many
client ids as it likes by each of its connections. Of more, the entities begin anew that were not heard of for the
longest time."""


class Debt(NamedTuple):
    """What an entity owes at a moment."""

    wait_s: float
    """For so long it is to do nothing; 0: it owes nothing."""
    value: float
    """As much as its quota allows in that time."""


NO_DEBT: Final = Debt(0.0, 0.0)


class Usage(NamedTuple):
    """What one entity does of one kind."""

    rate: str
    """Which quota."""
    key: BucketKey
    """Whose account."""
    measured: float
    """What it does, a second."""
    bound: float
    """What its quota allows, a second."""
    wait_s: float
    """For how long it has to wait now."""
    idle_s: float
    """Time since it did something."""


class Account:
    """What one entity did of one kind, and until when it was told to wait."""

    __slots__ = ("_bound", "_until_s", "bound", "rate")

    def __init__(self, now_s: float) -> None:
        """Nothing was done yet."""
        self.rate: Final = SampledRate(now_s)
        """What it did."""
        self.bound = 0.0
        """The quota that it was measured against last."""
        self._until_s = -math.inf
        self._bound = 0.0
        """The quota by which it was told to wait."""

    def owed_s(self, bound: float, now_s: float, windows: Windows) -> float:
        """How long it has to wait by what it was told; what is measured counts where it was told by another quota."""
        if bound == self._bound:
            return max(0.0, self._until_s - now_s)
        return self.rate.wait_s(bound, now_s, windows)

    def owe(self, wait_s: float, value: float, bound: float, now_s: float) -> float:
        """It did that much, and by what is measured waits for so long; returns for how long with what it owed already.

        Within the windows that is the same: what it did before is measured, too. Beyond them it is not: who does more
        while he owes would owe no more than before.
        """
        until_s = now_s + wait_s
        if bound == self._bound and self._until_s > now_s:
            until_s = max(until_s, min(self._until_s + value / bound, now_s + WAIT_S_MAX))
        self._until_s, self._bound = until_s, bound
        return max(0.0, until_s - now_s)


class ClientQuotas:
    """All accounts of one broker."""

    def __init__(self, *, accounts_max: int = ACCOUNTS_MAX) -> None:
        """Only assigns; there are no quotas at first."""
        self._accounts_max: Final = accounts_max
        self._bounds: Mapping[str, Mapping[QuotaEntity, float]] = {}
        self._windows: Windows = DEFAULT_WINDOWS
        self._accounts: Final[dict[str, OrderedDict[BucketKey, Account]]] = {
            rate: OrderedDict() for rate in CLIENT_RATES
        }
        self._shares: Final[OrderedDict[BucketKey, ConnectionShares]] = OrderedDict()
        """Of entities that owe for what they sent, or did when they were heard of last."""
        self.throttled: Final = dict.fromkeys(CLIENT_RATES, 0)
        """Answers that asked for time so far."""

    def take_up(self, table: QuotaTable) -> None:
        """Other quotas are in force."""
        self._bounds = {rate: bounds for rate, bounds in table.client_rates.items() if bounds}
        self._windows = table.windows
        for rate, accounts in self._accounts.items():
            if rate not in self._bounds:
                accounts.clear()
        if PRODUCER_BYTE_RATE not in self._bounds:
            self._shares.clear()

    def usages(self, rate: str, most: int, now_s: float) -> list[Usage]:
        """Who uses a quota, those that did so last first."""
        found: list[Usage] = []
        for key, account in islice(reversed(self._accounts[rate].items()), most):
            bound = account.bound
            wait_s = account.rate.wait_s(bound, now_s, self._windows)
            if rate != REQUEST_PERCENTAGE:
                wait_s = account.owed_s(bound, now_s, self._windows)
            measured = account.rate.measure(now_s, self._windows)
            found.append(Usage(rate, key, measured, bound, wait_s, now_s - account.rate.used_s))
        return found

    def limits(self, rate: str) -> bool:
        """Whether anybody has such a quota: else there is nothing to be measured."""
        return rate in self._bounds

    def accounts(self, rate: str) -> int:
        """Accounts that are kept."""
        return len(self._accounts[rate])

    def wait_s(self, rate: str, user: str, client_id: str, value: float, now_s: float) -> float:
        """Somebody did that much: how long is he to wait? 0: he may go on, or has no quota."""
        found = self._quota_of(rate, user, client_id)
        if found is None:
            return 0.0
        key, bound = found
        account = self._account(rate, key, now_s)
        account.rate.record(value, now_s, self._windows)
        account.bound = bound
        wait_s = account.rate.wait_s(bound, now_s, self._windows)
        if rate != REQUEST_PERCENTAGE:
            wait_s = account.owe(wait_s, value, bound, now_s)
        self.throttled[rate] += wait_s > 0.0
        return wait_s

    def debt(self, rate: str, user: str, client_id: str, now_s: float) -> Debt:
        """What somebody owes before he does anything; for rates of bytes."""
        found = self._quota_of(rate, user, client_id)
        if found is None:
            return NO_DEBT
        key, bound = found
        account = self._accounts[rate].get(key)
        if account is None:
            return NO_DEBT
        wait_s = account.owed_s(bound, now_s, self._windows)
        return Debt(wait_s, wait_s * bound)

    def sent_s(self, user: str, client_id: str, connection: str, value: float, now_s: float) -> float:
        """As ``wait_s`` for what a connection sends: it waits for no longer than its own share needs to pay for it."""
        found = self._quota_of(PRODUCER_BYTE_RATE, user, client_id)
        if found is None:
            return 0.0
        key, bound = found
        owed = self.debt(PRODUCER_BYTE_RATE, user, client_id, now_s).value
        wait_s = self.wait_s(PRODUCER_BYTE_RATE, user, client_id, value, now_s)
        if not wait_s:
            self._shares.pop(key, None)
            return 0.0
        # What the quota had left was free.
        charged = value if owed else min(value, wait_s * bound)
        return min(wait_s, self._shares_of(key, owed, now_s).sent(connection, charged, bound, now_s))

    def refused_s(self, user: str, client_id: str, connection: str, value: float, now_s: float) -> float:
        """How long a connection has to wait before it sends so much; 0: it may."""
        found = self._quota_of(PRODUCER_BYTE_RATE, user, client_id)
        debt = self.debt(PRODUCER_BYTE_RATE, user, client_id, now_s)
        if found is None or debt.value <= value:
            return 0.0
        key, bound = found
        return min(debt.wait_s, self._shares_of(key, debt.value, now_s).asks(connection, value, bound, now_s))

    def names(self) -> tuple[str, ...]:
        """Connections that share a quota at present."""
        count = sum(map(len, self._shares.values()))
        while count > SHARES_MAX:
            _, oldest = self._shares.popitem(last=False)
            count -= len(oldest)
        return tuple(name for shares in self._shares.values() for name in shares.names())

    def keep(self, looked_at: Collection[str], found: Mapping[str, int]) -> None:
        """Of these connections those were found; the others are gone."""
        gone = {name for name in looked_at if name not in found}
        for shares in self._shares.values():
            for name in gone.intersection(shares.names()):
                shares.forget(name)

    def _shares_of(self, key: BucketKey, owed: float, now_s: float) -> ConnectionShares:
        shares = self._shares.get(key)
        if shares is None or not owed:
            # What was saved up of an earlier debt counts for nothing in this one.
            shares = self._shares[key] = ConnectionShares(now_s)
            if len(self._shares) > SHARED_MAX:
                self._shares.popitem(last=False)
        self._shares.move_to_end(key)
        return shares

    def most(self, rate: str, user: str, client_id: str) -> float:
        """As much as somebody's quota allows in all its windows; infinite without one."""
        found = self._quota_of(rate, user, client_id)
        return math.inf if found is None else found[1] * self._windows.span_s

    def _quota_of(self, rate: str, user: str, client_id: str) -> tuple[BucketKey, float] | None:
        """The account, and the quota that counts."""
        bounds = self._bounds.get(rate)
        if bounds is None:
            return None
        for entity, key in levels(user, client_id):
            bound = bounds.get(entity)
            if bound is not None:
                return key, bound
        return None

    def _account(self, rate: str, key: BucketKey, now_s: float) -> Account:
        accounts = self._accounts[rate]
        account = accounts.get(key)
        if account is not None:
            accounts.move_to_end(key)
            return account
        for _ in range(LOOKED_AT):
            oldest = next(iter(accounts.values()), None)
            if oldest is None or (len(accounts) < self._accounts_max and now_s - oldest.rate.used_s < IDLE_S):
                break
            accounts.popitem(last=False)
        account = accounts[key] = Account(now_s)
        return account
