"""What clients do in a time, against what quotas allow them (KIP-13, KIP-55, KIP-124). Belongs to the event loop.

Goals: each broker decides by itself and at once; nobody is refused, but told to wait; memory is bounded whoever comes.

Algorithm: for each of the three rates, the quotas of the eight levels (``regnum_model.quota_matching``) say whose
account a caller draws on; each account is a rate over sliding windows. Only those with a quota have accounts. An
account that was not used for IDLE_S is dropped, and of more than ACCOUNTS_MAX the one that was not used for the longest
time: whoever comes back begins anew, as after a restart. A quota that changes applies to what was measured before.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from regnum_model.bucket import Windows
from regnum_model.quota_matching import BucketKey, levels
from regnum_model.quotas import CLIENT_RATES, DEFAULT_WINDOWS, QuotaEntity, QuotaTable

from regnum_broker.limits.rates import SampledRate

ACCOUNTS_MAX: Final = 20_000
"""Accounts of one rate."""
IDLE_S: Final = 3_600.0
"""For so long an account is kept that nobody uses (as in Kafka)."""
LOOKED_AT: Final = 2
"""Accounts that are looked at with each new one, whether they can be dropped: so the old ones go as new ones come."""


class ClientQuotas:
    """All accounts of one broker."""

    def __init__(self, *, accounts_max: int = ACCOUNTS_MAX) -> None:
        """Only assigns; there are no quotas at first."""
        self._accounts_max: Final = accounts_max
        self._bounds: Mapping[str, Mapping[QuotaEntity, float]] = {}
        self._windows: Windows = DEFAULT_WINDOWS
        self._accounts: Final[dict[str, OrderedDict[BucketKey, SampledRate]]] = {
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
        bounds = self._bounds.get(rate)
        if bounds is None:
            return 0.0
        for entity, key in levels(user, client_id):
            bound = bounds.get(entity)
            if bound is not None:
                account = self._account(rate, key, now_s)
                account.record(value, now_s, self._windows)
                wait_s = account.wait_s(bound, now_s, self._windows)
                self.throttled[rate] += wait_s > 0.0
                return wait_s
        return 0.0

    def _account(self, rate: str, key: BucketKey, now_s: float) -> SampledRate:
        accounts = self._accounts[rate]
        account = accounts.get(key)
        if account is not None:
            accounts.move_to_end(key)
            return account
        for _ in range(LOOKED_AT):
            oldest = next(iter(accounts.values()), None)
            if oldest is None or (len(accounts) < self._accounts_max and now_s - oldest.used_s < IDLE_S):
                break
            accounts.popitem(last=False)
        account = accounts[key] = SampledRate(now_s)
        return account
