"""Since when orders have been unacknowledged."""

from regnum_election.dispatch.order_ages import OrderAges


def test_the_oldest_is_at_the_front_and_keeps_its_age_when_it_is_given_again() -> None:
    ages: OrderAges[str] = OrderAges()
    assert (len(ages), ages.oldest_s) == (0, None)
    ages.given(["a", "b"], 1.0)
    ages.given(["c", "a"], 2.0)
    assert (len(ages), ages.oldest_s) == (3, 1.0)
    assert ages.given_before(1.5, most=10) == ["a", "b"]
    assert ages.given_before(9.0, most=2) == ["a", "b"]


def test_what_is_acknowledged_is_gone_and_what_was_refused_stays_as_old_as_it_is() -> None:
    ages: OrderAges[str] = OrderAges()
    ages.given(["a", "b"], 1.0)
    ages.settled(["a", "b", "nobody gave it"], except_for={"b"})
    ages.given(["b"], 5.0)
    assert (len(ages), ages.oldest_s) == (1, 1.0)
    ages.settled(["b"])
    assert (len(ages), ages.oldest_s) == (0, None)
