"""Aimed schedules: the product is clean in each, and each finds the mutants that open its way to a loss.

A story takes 1 to 4 s of processor time. Of the mutants that seeds find, ``docs/track-record.md`` names the seed.
"""

import pytest
from regnum_testing.simulation.apart import outcomes_apart
from regnum_testing.simulation.mutants import MUTANTS
from regnum_testing.simulation.mutants.hunting import TIMES_TOLD
from regnum_testing.simulation.schedules.stories import STORIES

TOLD = [name for name, mutant in MUTANTS.items() if mutant.story]
SECOND_LINES = [name for name, mutant in MUTANTS.items() if mutant.beside]

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


@pytest.mark.parametrize("story", STORIES)
def test_the_product_is_clean(story: str) -> None:
    (outcome,) = outcomes_apart("--story", story)
    assert outcome["found"] == [], "\n".join((*outcome["log"], *outcome["found"]))


@pytest.mark.parametrize("mutant", TOLD)
def test_mutants_are_found(mutant: str) -> None:
    outcomes = outcomes_apart("--story", MUTANTS[mutant].story, "--mutant", mutant, f"1-{TIMES_TOLD}")
    assert any(MUTANTS[mutant].is_found(outcome["found"]) for outcome in outcomes)


@pytest.mark.parametrize("mutant", SECOND_LINES)
def test_what_stands_beside_a_mutant_does_no_such_harm_alone(mutant: str) -> None:
    (outcome,) = outcomes_apart("--story", MUTANTS[mutant].story, "--mutant", mutant, "--beside-alone")
    assert not MUTANTS[mutant].is_found(outcome["found"])
