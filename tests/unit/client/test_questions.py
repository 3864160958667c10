"""What a client asks of the brokers next, and when."""

import pytest
from regnum_client.cluster.questions import AGE_MAX_S, PACE_S, Question, Questions


def started(*, now_s: float = 100.0) -> Questions:
    """A client whose first question, about brokers only, was answered."""
    questions = Questions()
    first = questions.take(now_s)
    assert first == Question(topics=(), whole=True, sought=frozenset())
    questions.answered(first, (), asked_s=now_s)
    return questions


def partial(*topics: str) -> Question:
    return Question(topics=topics, whole=False, sought=frozenset(topics))


def test_topics_that_are_looked_for_are_one_question_about_nothing_else_and_at_once() -> None:
    questions = started()
    questions.keep("known", 100.0)
    for topic in ("b", "a"):
        questions.seek(topic)
    assert questions.due_s <= 100.001
    assert questions.take(100.001) == partial("a", "b")
    assert questions.take(100.001) is None
    assert questions.due_s == 100.0 + AGE_MAX_S


def test_a_question_that_brought_what_it_named_needs_no_pause() -> None:
    questions = started()
    for number in range(5):
        topic, at_s = f"t{number}", 100.001 + number / 1000
        questions.seek(topic)
        assert questions.take(at_s) == partial(topic)
        questions.answered(partial(topic), {topic}, asked_s=at_s)


def test_topics_that_do_not_come_are_asked_for_again_after_the_pace_and_hold_nobody_up() -> None:
    questions = started()
    questions.seek("none")
    assert questions.take(100.001) == partial("none")
    questions.answered(partial("none"), (), asked_s=100.001)
    questions.seek("none")
    questions.seek("new")
    assert questions.take(100.002) is None, "the last question brought nothing"
    both = questions.take(100.001 + PACE_S)
    assert both == partial("new", "none")
    questions.answered(both, {"new"}, asked_s=100.001 + PACE_S)
    questions.seek("none")
    questions.seek("newer")
    assert questions.take(100.003 + PACE_S) == partial("newer"), "it waits alone"
    assert questions.due_s == pytest.approx(100.001 + 2 * PACE_S)


def test_a_whole_question_names_what_is_in_use_and_what_is_looked_for() -> None:
    questions = started()
    assert not questions.keep("used", 100.0)
    assert questions.keep("used", 100.0)
    questions.seek("new")
    questions.want_whole()
    whole = questions.take(100.0 + PACE_S)
    assert whole == Question(topics=("new", "used"), whole=True, sought=frozenset({"new"}))
    assert questions.take(100.0 + PACE_S) is None


def test_whole_questions_keep_their_pace_and_partial_ones_go_between_them() -> None:
    questions = started()
    questions.want_whole()
    questions.seek("new")
    assert questions.take(100.001) == partial("new")
    assert questions.due_s == 100.0 + PACE_S


def test_topics_looked_for_without_end_do_not_keep_a_whole_question_waiting() -> None:
    questions = started()
    questions.want_whole()
    kinds = []
    for number in range(40):
        now_s = 100.0 + number * PACE_S / 10
        questions.seek(f"t{number}")
        question = questions.take(now_s)
        assert question is not None
        questions.answered(question, question.sought, asked_s=now_s)
        kinds.append(question.whole)
        questions.want_whole()
    assert [place for place, whole in enumerate(kinds) if whole] == [10, 20, 30]


def test_age_makes_a_whole_question_due_and_partial_ones_do_not_put_it_off() -> None:
    questions = started()
    questions.keep("used", 100.0)
    questions.seek("used")
    assert questions.take(100.0 + AGE_MAX_S - 1) == partial("used")
    assert questions.due_s == 100.0 + AGE_MAX_S
    assert questions.take(100.0 + AGE_MAX_S) == Question(topics=("used",), whole=True, sought=frozenset())


def test_a_question_that_nobody_answered_is_due_again_if_it_was_whole() -> None:
    questions = started()
    questions.want_whole(everything=True)
    everything = questions.take(100.0 + PACE_S)
    assert everything == Question(topics=None, whole=True, sought=frozenset())
    questions.failed(everything)
    assert questions.take(100.0 + 2 * PACE_S) == everything
    questions.want_whole()
    assert questions.take(100.0 + 3 * PACE_S) == Question(topics=(), whole=True, sought=frozenset()), "everything once"
    questions.seek("t")
    questions.take(100.0 + 3 * PACE_S)
    questions.failed(partial("t"))
    assert questions.due_s == 100.0 + 3 * PACE_S + AGE_MAX_S
