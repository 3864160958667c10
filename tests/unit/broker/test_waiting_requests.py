"""Produce requests that wait for replicas, and are answered or given up before these confirm."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.replication.purgatory import GIVEN_UP_MAX
from regnum_broker.serving.produce_answers import PendingAnswer, PendingAnswers
from regnum_broker.serving.produce_appends import LET_GO, Admitted, Done
from regnum_broker.serving.produce_requests import Acks, ProduceResponse, ProduceResult
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import settle
from regnum_testing.leading_replicas import LeadingReplicas


class Requests:
    """Requests for a partition whose follower confirms nothing."""

    def __init__(self, leading: LeadingReplicas) -> None:
        self.book = PendingAnswers(complete=lambda _: None, took=lambda _: None, supervisor=Supervisor("test"))
        self.answers: list[ProduceResponse] = []
        self._leading = leading

    def waiting(self, offset: int) -> PendingAnswer:
        """One whose record is appended there."""
        pending = PendingAnswer(self.book, self.answers.append, acks=Acks.ALL, began_s=0.0)
        pending.results.append(ProduceResult("t", 0))
        item = Admitted(pending=pending, index=0, leadership=self._leading.leadership(), message=LET_GO)
        pending.open[0], pending.coming = item, False
        self.book.appended(item, Done(base_offset=offset, last_offset=offset, duplicate=False, batch=b""))
        return pending


@pytest.mark.parametrize("end", [PendingAnswers.finish, lambda _, pending: pending.give_up()])
async def test_what_nobody_waits_for_any_more_is_not_kept_until_replicas_confirm(
    tmp_path: Path, end: Callable[[PendingAnswers, PendingAnswer], None]
) -> None:
    """Else they were told of it all in one turn, when they do: 600,000 after an hour of repeats."""
    async with LeadingReplicas(tmp_path) as leading:
        requests, acks = Requests(leading), leading.partition().acks
        kept = requests.waiting(0)
        for _ in range(1_000):
            end(requests.book, requests.waiting(0))
        assert len(acks) <= GIVEN_UP_MAX + 2
        gc.collect()
        assert sum(isinstance(one, Admitted) for one in gc.get_objects()) == 1
        requests.answers.clear()
        acks.committed(1)
        await settle()
        assert [answer.results[0].error_code for answer in requests.answers] == [errors_pb2.ERROR_CODE_NONE]
        assert kept.ended
        assert len(acks) == 0
