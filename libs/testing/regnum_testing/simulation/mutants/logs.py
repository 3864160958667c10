"""Mutants of what a log directory proves, and of which life of a thing is meant."""

from typing import Any, Final

from regnum_broker.cluster.lives.lives import Lives
from regnum_broker.log import life
from regnum_broker.log.contents import Contents
from regnum_broker.log.proof import Proof
from regnum_broker.replication.decisions import lives

from regnum_testing.simulation.mutants.mutant import Mutant, replaced


def _fits(*taken: life.Fit) -> None:
    def make(judge: Any) -> Any:
        def mutated(*arguments: Any, **named: Any) -> life.Fit:
            fit: life.Fit = judge(*arguments, **named)
            return life.Fit.FITS if fit in taken else fit

        return mutated

    replaced(life, "judge", make)


def _store_goes_back() -> None:
    _fits(life.Fit.STORE_BEHIND)


def a_lower_broker_epoch_proves_nothing() -> None:
    """A second line: a broker that runs on is given a broker epoch that it has passed."""

    async def nothing(self: Any, *_: Any) -> None:
        del self

    replaced(Lives, "prove", lambda _: nothing)


def _directory_goes_back() -> None:
    _fits(life.Fit.DIRECTORY_BEHIND)


def _failed_disk_keeps_its_id() -> None:
    replaced(Proof, "void", lambda _: lambda self: None)


def _failed_disk_tells_only_itself() -> None:
    async def nothing(self: Any) -> None:
        del self

    replaced(Lives, "end", lambda _: nothing)


def _every_log_is_complete() -> None:
    replaced(Contents, "__init__", lambda init: lambda self, **named: init(self, **{**named, "complete": True}))


def _removed_records_come_back() -> None:
    replaced(lives, "life_of", lambda _: lambda *_, **__: lives.Life.THIS)
    replaced(lives, "may_make", lambda _: lambda **_: True)


MUTANTS: Final = (
    Mutant(
        name="store-goes-back-unnoticed",
        rules="S10, T9",
        breaks="a broker whose disk knows more than the store takes that for in order",
        apply=_store_goes_back,
        beside=(a_lower_broker_epoch_proves_nothing,),
        story="the_store_goes_back",
    ),
    Mutant(
        name="directory-goes-back-unnoticed",
        rules="S10, T8",
        breaks="a directory that was put back keeps its log id",
        apply=_directory_goes_back,
        story="a_volume_goes_back",
    ),
    Mutant(
        name="failed-disk-keeps-log-id",
        rules="S10",
        breaks="a directory whose disk has failed keeps its log id in the same boot",
        apply=_failed_disk_keeps_its_id,
        story="a_disk_fails_once_away_from_the_store",
    ),
    Mutant(
        name="failed-disk-tells-only-itself",
        rules="S10",
        breaks="that a disk has failed is noted on that disk alone, which may refuse the note",
        apply=_failed_disk_tells_only_itself,
        story="a_disk_fails_for_good_and_works_again",
    ),
    Mutant(
        name="power-loss-unnoticed",
        rules="S10, T1",
        breaks="a log keeps its id at every start",
        apply=_every_log_is_complete,
        story="a_follower_loses_power",
    ),
    Mutant(
        name="removed-records-come-back",
        rules="S13, T10",
        breaks="a replica of a removed partition is taken for one of the partition that has its number now",
        apply=_removed_records_come_back,
        story="a_number_is_given_again",
    ),
)
"""Those of this module."""
