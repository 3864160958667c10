"""A store that asks nobody who connects: warned of, refused where one that does is required, asked about once."""

from collections.abc import Collection

import pytest
from regnum_coordination.admission import Admission, Examination, Knock, settle
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.port import Store
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.settings import ServiceSettings
from regnum_service.store_session import ToldStore
from regnum_service.store_trust import OPEN, StoreTrust


class Telling:
    """Says what a store does with strangers."""

    def __init__(self, *admissions: Admission, loopback: bool = False, weaknesses: tuple[str, ...] = ()) -> None:
        self.asked: list[str] = []
        self._left = list(admissions)
        self._loopback = loopback
        self._weaknesses = weaknesses

    async def __call__(self, url: str, *, nodes: Collection[str], timeout_s: float) -> Examination:
        assert "/brokers/ids" in nodes
        assert timeout_s > 0
        self.asked.append(url)
        return Examination(admission=self._left.pop(0), loopback=self._loopback, weaknesses=self._weaknesses)


def told(*, authorizer: str = "acl", required: bool = False, url: str = "memory://trust") -> ServiceSettings:
    return ServiceSettings.model_construct(
        coordination=url, authorizer=authorizer, require_store_authentication=required, session_timeout_s=6.0
    )


@pytest.mark.parametrize(
    ("knocks", "certificate", "found"),
    [
        ([Knock.ADMITTED, Knock.REFUSED], True, Admission.ADMITTED),
        ([Knock.REFUSED, Knock.SILENT], False, Admission.REFUSED),
        ([Knock.ENDED, Knock.SILENT], True, Admission.REFUSED),
        ([Knock.ENDED], False, Admission.UNANSWERED),
        ([Knock.SILENT], True, Admission.UNANSWERED),
    ],
)
def test_what_a_store_does_with_strangers(knocks: list[Knock], *, certificate: bool, found: Admission) -> None:
    assert settle(knocks, shows_certificate=certificate) is found


@pytest.mark.parametrize(
    ("authorizer", "admission", "loopback", "warned"),
    [
        ("acl", Admission.ADMITTED, False, True),
        ("acl", Admission.ADMITTED, True, False),
        ("acl", Admission.REFUSED, False, False),
        ("acl", Admission.UNANSWERED, False, False),
    ],
)
async def test_it_is_warned_of_where_access_rules_count_and_other_machines_reach_it(
    authorizer: str, admission: Admission, *, loopback: bool, warned: bool
) -> None:
    trust = StoreTrust(told(authorizer=authorizer), examine=Telling(admission, loopback=loopback))
    await trust.check()
    assert trust.warnings == ((OPEN,) if warned else ())


async def test_where_everybody_may_do_everything_nobody_asks() -> None:
    telling = Telling()
    await StoreTrust(told(authorizer="none"), examine=telling).check()
    assert telling.asked == []


async def test_where_it_is_required_nothing_starts_with_a_store_that_asks_nobody_wherever_it_is() -> None:
    trust = StoreTrust(told(required=True), examine=Telling(Admission.ADMITTED, loopback=True))
    sessions: list[Store] = []

    async def open_session(settings: ServiceSettings) -> Store:
        sessions.append(await ToldStore(settings, trust=StoreTrust(told(authorizer="none"))).open())
        return sessions[-1]

    with pytest.raises(StartRefusedError, match=r"require-store-authentication .* asks nobody who connects") as refused:
        await ToldStore(told(required=True), open_session=open_session, trust=trust).open()
    assert refused.value.exit_status is ExitStatus.WRONG_USE
    assert sessions[0].session_state.value == "lost", "the session that was opened is not left"


async def test_what_cannot_be_found_out_is_asked_again_with_the_next_session() -> None:
    required = StoreTrust(told(required=True), examine=Telling(Admission.UNANSWERED, Admission.REFUSED))
    with pytest.raises(ConnectionLoss, match="could not be found out"):
        await required.check()
    await required.check()
    telling = Telling(Admission.UNANSWERED, Admission.ADMITTED)
    warned = StoreTrust(told(), examine=telling)
    for _ in range(3):
        await warned.check()
    assert (len(telling.asked), warned.warnings) == (2, (OPEN,)), "once it was answered nobody asks any more"


async def test_a_store_with_users_is_looked_at_for_what_they_get_past_without_access_rules_too() -> None:
    telling = Telling(Admission.REFUSED, weaknesses=("is etcd 3.6.5",))
    trust = StoreTrust(told(authorizer="none", url="memory://x?user=ann&password_file=p"), examine=telling)
    await trust.check()
    assert trust.warnings == ("is etcd 3.6.5",)
