"""How much a follower asks for at a time: what is stored in a short time, however small the batches are."""

import pytest
from regnum_broker.replication.decisions.answer_size import BYTES_MAX, BYTES_MIN, STORING_S, AnswerSize


def storing(size: AnswerSize, bytes_in_a_second: float, answers: int) -> list[float]:
    """Times that full answers take to store at that pace."""
    took = []
    for _ in range(answers):
        took.append(size.wanted / bytes_in_a_second)
        size.stored(size.wanted, took[-1])
    return took


def test_large_batches_come_in_large_answers_soon() -> None:
    size = AnswerSize()
    storing(size, 1e9, 5)
    assert size.wanted == BYTES_MAX


def test_of_small_batches_an_answer_is_what_is_stored_in_a_short_time() -> None:
    size = AnswerSize()
    size.wanted = BYTES_MAX
    took = storing(size, 20e6, 6)
    assert took[0] > 0.4
    # It is looked for by doubling.
    assert max(took[1:]) <= 2 * STORING_S
    assert BYTES_MIN <= size.wanted <= 2 * 20e6 * STORING_S


def test_of_the_smallest_it_is_no_less_than_pays_for_itself() -> None:
    size = AnswerSize()
    storing(size, 1e6, 6)
    assert size.wanted == BYTES_MIN


def test_it_grows_again_when_large_batches_come() -> None:
    size = AnswerSize()
    storing(size, 1e6, 6)
    storing(size, 1e9, 6)
    assert size.wanted == BYTES_MAX


@pytest.mark.parametrize("took_s", [0.001, 1.0])
def test_small_answers_say_nothing(took_s: float) -> None:
    size = AnswerSize()
    for _ in range(10):
        size.stored(BYTES_MIN // 2 - 1, took_s)
    assert size.wanted == BYTES_MIN
