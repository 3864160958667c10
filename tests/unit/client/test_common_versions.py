"""`regnum metadata check` compares what is held at one version, also while the cluster changes without end."""

import asyncio
from collections.abc import Callable

from regnum.metadata.v1.image_pb2 import DescribeImageResponse
from regnum.types.v1 import errors_pb2
from regnum_client.admin.metadata.common_versions import ASKS_MAX, Ask, pairs
from regnum_service.errors import RegnumError


def image(version: int, content: str = "") -> DescribeImageResponse:
    return DescribeImageResponse(version=version, digest=f"{version}{content}".encode())


class Cluster:
    """A controller and processes that follow it; it publishes as often as a test says."""

    def __init__(self, *, publishes: Callable[[int], bool] = lambda _: False) -> None:
        self.version = 7
        self.questions = 0
        self.asked_again = 0
        self._publishes = publishes

    def _asked(self) -> None:
        self.questions += 1
        self.version += self._publishes(self.questions)

    async def controller(self, version: int) -> DescribeImageResponse:
        self.asked_again += 1
        self._asked()
        self.version = max(self.version, version)
        return image(self.version)

    def process(self, *, ahead: int = 0, content: str = "", stands_at: int | None = None) -> Ask:
        async def ask(version: int) -> DescribeImageResponse | RegnumError:
            # One turn: the others are asked at the same time.
            await asyncio.sleep(0)
            self._asked()
            self.version = max(self.version, version) + ahead
            return image(self.version if stands_at is None else stands_at, content)

        return ask


async def test_a_process_that_is_further_than_the_controller_said_is_compared_with_what_the_controller_says_then() -> (
    None
):
    cluster = Cluster()
    found = await pairs(cluster.controller, {"one": cluster.process(), "two": cluster.process(ahead=2)}, image(7))
    assert [(one.met, one.held.digest == one.published.digest) for one in found.values()] == [(True, True)] * 2
    assert cluster.asked_again == 1


async def test_who_holds_something_else_is_found_also_when_it_is_further() -> None:
    cluster = Cluster()
    found = await pairs(cluster.controller, {"one": cluster.process(ahead=2, content="else")}, image(7))
    assert found["one"].met
    assert found["one"].held.digest != found["one"].published.digest


async def test_they_meet_as_soon_as_nothing_is_published_between_two_questions() -> None:
    cluster = Cluster(publishes=lambda question: question < 9)
    found = await pairs(cluster.controller, {"one": cluster.process()}, image(7))
    assert found["one"].met
    assert cluster.asked_again > 1


async def test_a_cluster_that_never_rests_is_asked_a_bounded_number_of_times_and_nobody_is_called_unequal() -> None:
    cluster = Cluster(publishes=lambda _: True)
    found = await pairs(cluster.controller, {"one": cluster.process()}, image(7))
    assert cluster.asked_again == ASKS_MAX
    assert not found["one"].met
    assert found["one"].is_ahead


async def test_who_stays_behind_and_who_does_not_answer_are_told_apart_and_not_waited_for() -> None:
    cluster = Cluster()
    refusal = RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "away")

    async def away(_version: int) -> DescribeImageResponse | RegnumError:
        return refusal

    found = await pairs(cluster.controller, {"behind": cluster.process(stands_at=5), "away": away}, image(7))
    assert (found["behind"].met, found["behind"].is_ahead) == (False, False)
    assert (found["away"].held, found["away"].met, found["away"].is_ahead) == (refusal, False, False)
    assert cluster.asked_again == 0
