"""Who waits for news is told before his time is over that there are none."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from regnum.admin.v1 import events_pb2
from regnum_election.history.log import EventLog
from regnum_election.servicers.events import WAIT_MS_MAX, EventServicer
from regnum_service.clock import SystemClock
from regnum_testing.served import Caller
from regnum_testing.waiting import within

SHORT: Any = Caller(remaining_s=0.2)
WELL_BEFORE_S = WAIT_MS_MAX / 1000 / 2
"""By then an answer has come that does not wait for as long as the call says."""


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    log = EventLog(SystemClock())
    log.open(tmp_path / "log")
    await log.ready()
    yield log
    await log.close()


async def test_an_empty_page_comes_within_the_callers_time(log: EventLog) -> None:
    async def reigns() -> None:
        """This process is the controller."""

    place = events_pb2.EventPosition(controller_epoch=1, number=1)
    request = events_pb2.DescribeEventsRequest(after=place, wait_ms=WAIT_MS_MAX)
    page = await within(EventServicer(reigns, log, SystemClock()).DescribeEvents(request, SHORT), WELL_BEFORE_S)
    assert (len(page.events), page.more) == (0, False)
