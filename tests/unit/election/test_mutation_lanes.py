"""Callers take turns: nobody waits for the whole work of somebody else."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from regnum_election.reign.event_waits import EventWaits
from regnum_election.reign.events import EventQueue, Mutation, nobody_waits
from regnum_election.reign.mutation_lanes import BEGUN_MAX, Caller, MutationLanes

STORM, OPERATOR = ("ANONYMOUS", "storm"), ("ANONYMOUS", "operator")


@dataclass(eq=False)
class Work:
    """Something in steps."""

    name: str
    caller: Caller = ("", "")
    steps: int = 1
    gives_way: bool = True


def lanes(*works: Work) -> MutationLanes[Work]:
    made = MutationLanes[Work](EventWaits())
    for work in works:
        made.append(work)
    return made


def step(queue: MutationLanes[Work]) -> str:
    """What the controller does: the name of what got a step."""
    work = queue.popleft()
    work.steps -= 1
    if work.steps:
        queue.put_back(work)
    return work.name


def all_steps(queue: MutationLanes[Work]) -> list[str]:
    names = []
    while queue:
        names.append(step(queue))
    return names


def test_somebody_elses_work_begins_after_a_step_and_not_after_all_of_it() -> None:
    queue = lanes(*(Work(f"storm {number}", STORM, steps=40) for number in range(20)))
    assert [step(queue) for _ in range(5)] == ["storm 0"] * 5
    queue.append(Work("operator", OPERATOR, steps=3))
    # One of the other at most before each of its own.
    first = [step(queue) for _ in range(6)]
    assert first.count("operator") == 3
    assert "operator" in first[:2]
    assert set(first) == {"operator", "storm 0"}


def test_a_callers_own_work_goes_in_order_and_one_after_the_other() -> None:
    queue = lanes(Work("a", STORM, steps=3), Work("b", STORM), Work("c", STORM, steps=2))
    assert all_steps(queue) == ["a", "a", "a", "b", "c", "c"]
    assert len(queue) == 0
    queue.append(Work("d", STORM))
    assert all_steps(queue) == ["d"], "a caller whose work is done may begin again"


def test_few_have_begun_at_a_time_so_that_somebody_is_done_soon() -> None:
    callers = 10 * BEGUN_MAX
    queue = lanes(*(Work(str(number), ("user", str(number)), steps=5) for number in range(callers)))
    seen: dict[str, int] = {}
    done = 0
    while queue:
        name = step(queue)
        seen[name] = seen.get(name, 0) + 1
        done += seen[name] == 5
        assert len(seen) - done <= BEGUN_MAX
    assert done == callers
    assert list(seen) == [str(number) for number in range(callers)], "whoever came first begins first"


def test_what_does_not_give_way_is_done_whole_and_does_not_wait_for_the_whole_of_others() -> None:
    queue = lanes(*(Work(str(number), ("user", str(number)), steps=50) for number in range(BEGUN_MAX + 1)))
    for _ in range(3 * BEGUN_MAX):
        step(queue)
    queue.append(Work("whole", steps=4, gives_way=False))
    seen = [step(queue) for _ in range(8)]
    begin = seen.index("whole")
    assert begin <= 2
    assert seen[begin : begin + 4] == ["whole"] * 4


def test_what_has_begun_goes_on_however_much_comes_behind_it() -> None:
    queue = lanes(Work("begun", STORM, steps=10))
    step(queue)
    taken: list[str] = []
    while taken.count("begun") < 9:
        queue.append(Work("whole", gives_way=False))
        queue.append(Work("other", ("user", str(len(taken)))))
        taken.append(step(queue))
        assert len(taken) <= 3 * 9


def test_callers_take_turns_and_the_one_with_many_calls_gets_no_more() -> None:
    queue = lanes(*(Work("storm", STORM) for _ in range(30)), *(Work("operator", OPERATOR) for _ in range(3)))
    assert all_steps(queue)[:6].count("operator") == 3


def test_taking_costs_the_same_however_many_callers_wait() -> None:
    asked = 0

    class Counted(tuple[str, str]):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal asked
            asked += 1
            return tuple(self) == other

        __hash__ = tuple.__hash__

    callers = 1_000
    queue = lanes(*(Work(str(number), Counted(("user", str(number))), steps=3) for number in range(callers)))
    assert len(all_steps(queue)) == 3 * callers
    assert asked <= 20 * callers


async def test_the_queue_drops_what_has_begun_as_well_and_counts_it() -> None:
    async def steps() -> AsyncGenerator[None, None]:
        yield

    def mutation(name: str, caller: Caller) -> Mutation:
        return Mutation(name=name, steps=steps(), abandon=nobody_waits, caller=caller, gives_way=True)

    queue = EventQueue()
    begun, fresh = mutation("begun", STORM), mutation("fresh", STORM)
    queue.put_mutation(begun)
    queue.put_mutation(fresh)
    assert await queue.take() is begun
    queue.put_back(begun)
    assert dict(queue.depths)["mutations"] == 2
    assert queue.drain() == (begun, fresh)
    assert queue.is_empty
    queue.put_mutation(fresh)
    assert await queue.take() is fresh, "nobody has anything begun after the end of a reign"
