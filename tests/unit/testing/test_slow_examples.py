"""What an example of a property takes is the machine's matter: no deadline is hidden in the tests."""

from hypothesis import HealthCheck, settings


def test_no_example_has_a_deadline_and_none_is_too_slow() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
