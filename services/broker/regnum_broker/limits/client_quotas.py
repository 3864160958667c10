"""What clients do in a time, against what quotas allow them (KIP-13, KIP-55, KIP-124). Belongs to the event loop.

Goals: each broker decides by itself and at once; nobody is refused, but told to wait; memory is bounded whoever comes.

Algorithm: for each of the three rates, the quotas of the eight levels (``regnum_model.quota_matching``) say whose
account a caller draws on; each account is a rate over sliding windows. Only those with a quota have accounts. An
account that was not used for IDLE_S is dropped, and of more than ACCOUNTS_MAX the one that was not used for the longest
time: whoever comes back begins anew, as after a restart. A quota that changes applies to what was measured before.

Bytes are owed: who was told to wait owes until that time is over, also when the windows have forgotten what he took,
and whichever connection asks. Else a large answer every eleven windows, on a new connection each, would pass a small
quota. An account that stands against another bound by now owes what is measured.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from regnum_model.bucket import Windows
from regnum_model.quota_matching import BucketKey, levels
from regnum_model.quotas import CLIENT_RATES, DEFAULT_WINDOWS, REQUEST_PERCENTAGE, QuotaEntity, QuotaTable

from regnum_broker.limits.rates import WAIT_S_MAX, SampledRate

ACCOUNTS_MAX: Final = 20_000
"""Accounts of one rate."""
IDLE_S: Final = 3_600.0
"""For so long an account is kept that nobody uses (as in Kafka)."""
LOOKED_AT: Final = 2
"""Accounts that are looked at with each new one, whether they can be dropped: so the old ones go as new ones come."""


class Debt(NamedTuple):
    """What an entity owes at a moment."""

    wait_s: float
    """For so long it is to do nothing; 0: it owes nothing."""
    value: float
    """As much as its quota allows in that time."""


NO_DEBT: Final = Debt(0.0, 0.0)


class Account:
    """What one entity did of one kind, and until when it was told to wait."""

    __slots__ = ("_bound", "_until_s", "rate")

    def __init__(self, now_s: float) -> None:
        """Nothing was done yet."""
        self.rate: Final = SampledRate(now_s)
        """What it did."""
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
        self.throttled: Final = dict.fromkeys(CLIENT_RATES, 0)
        """Answers that asked for time so far."""

    def take_up(self, table: QuotaTable) -> None:
        """Other quotas are in force."""
        self._bounds = {rate: bounds for rate, bounds in table.client_rates.items() if bounds}
        self._windows = table.windows
        for rate, accounts in self._accounts.items():
            if rate not in self._bounds:
                accounts.clear()

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
