"""A test that hangs where no time-out reaches says where, and ends."""

import pytest

pytest_plugins = ["pytester"]

TORN_DOWN_FOR_EVER = """
import asyncio
import pytest
import pytest_asyncio

@pytest_asyncio.fixture
async def never_closed():
    ended = asyncio.Event()
    async def end_of_what_is_stuck():
        await ended.wait()
    yield ended
    await asyncio.create_task(end_of_what_is_stuck())

@pytest.mark.timeout(1)
@pytest.mark.asyncio
async def test_fails_first(never_closed):
    assert False
"""


def test_what_hangs_behind_a_failure_is_told_with_its_tasks_and_ends_the_process(pytester: pytest.Pytester) -> None:
    """A process of its own: it does not come back."""
    pytester.makepyfile(TORN_DOWN_FOR_EVER)
    result = pytester.runpytest_subprocess("-p", "regnum_testing.hung_tests", "-o", "hung_grace_s=0")
    assert result.ret == 1
    told = result.stderr.str()
    assert "::test_fails_first is not over after " in told
    assert "end_of_what_is_stuck" in told
    assert "run_forever" in told


def test_who_looks_with_a_debugger_or_asks_for_no_time_out_is_not_interrupted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import threading

        def timers():
            return [one for one in threading.enumerate() if isinstance(one, threading.Timer) and one.is_alive()]

        def test_a_debugger(request):
            assert len(timers()) == 1
            watch = timers()[0]
            request.config.hook.pytest_enter_pdb(config=request.config, pdb=None)
            watch.join(10)
            assert not timers()

        import pytest

        @pytest.mark.timeout(0)
        def test_no_limit():
            assert not timers()
        """
    )
    result = pytester.runpytest_subprocess("-p", "regnum_testing.hung_tests", "-o", "timeout=60", "-p", "no:asyncio")
    result.assert_outcomes(passed=2)
