"""Whether a log directory and the store are of one time (safety rule S10, traces T8 and T9)."""

import random

import pytest
from regnum_broker.log.life import Fit, KnownLives, judge
from regnum_model.ids import DirectoryId
from regnum_model.nodes.lives import Life, LifeNode

HERE, ELSEWHERE = DirectoryId("here"), DirectoryId("elsewhere")


def life(count: int, id: str = "run") -> Life:
    return Life(id=id, count=count)


def found(count: int, id: str = "run", directory: DirectoryId = HERE) -> LifeNode:
    return LifeNode(life=life(count, id), directory=directory)


SIX = KnownLives(tree=None, confirmed=life(6))


@pytest.mark.parametrize(
    ("known", "node", "tree", "fit"),
    [
        (None, None, None, Fit.FITS),
        (KnownLives(proposed=(life(1),)), None, None, Fit.FITS),
        (SIX, found(6), None, Fit.FITS),
        (KnownLives(confirmed=life(6), proposed=(life(7, "next"),)), found(6), None, Fit.FITS),
        (KnownLives(confirmed=life(6), proposed=(life(7, "next"),)), found(7, "next"), None, Fit.FITS),
        (KnownLives(proposed=(life(7),)), found(7), "restored", Fit.FITS),
        (KnownLives(confirmed=life(6), proposed=(life(9),)), found(9), "restored", Fit.FITS),
        (SIX, None, "restored", Fit.RESTORED),
        (KnownLives(tree="first", confirmed=life(6)), None, "second", Fit.RESTORED),
        (SIX, None, None, Fit.FORGOTTEN),
        (None, found(6), None, Fit.UNKNOWN),
        (None, found(6, directory=ELSEWHERE), None, Fit.DIRECTORY_BEHIND),
        (KnownLives(proposed=(life(7),)), found(6, directory=ELSEWHERE), None, Fit.DIRECTORY_BEHIND),
        (SIX, found(7), None, Fit.DIRECTORY_BEHIND),
        (KnownLives(confirmed=life(6), proposed=(life(7, "mine"),)), found(7, "a copy"), None, Fit.DIRECTORY_BEHIND),
        (SIX, found(6, directory=ELSEWHERE), None, Fit.UNKNOWN),
        (SIX, found(9, directory=ELSEWHERE), None, Fit.UNKNOWN),
        (SIX, found(5), None, Fit.STORE_BEHIND),
        (SIX, found(6, "another world"), None, Fit.STORE_BEHIND),
        (KnownLives(tree="second", confirmed=life(6)), found(9), None, Fit.STORE_BEHIND),
    ],
)
def test_what_each_pair_means(known: KnownLives | None, node: LifeNode | None, tree: str | None, fit: Fit) -> None:
    assert judge(known, node, tree=tree, directory=HERE) is fit


def test_the_store_deletes_where_it_is_known_to_be_no_older_and_nowhere_else() -> None:
    assert {fit for fit in Fit if fit.may_delete} == {Fit.FITS, Fit.RESTORED, Fit.DIRECTORY_BEHIND}


def test_a_file_that_cannot_be_read_says_nothing() -> None:
    for data in (None, b"", b"{}", b"\xff", b"[" * 100_000, b'{"version":1,"tree":3,"confirmed":null,"proposed":[]}'):
        assert KnownLives.decode(data) is None
    known = KnownLives(tree="tree", confirmed=life(6), proposed=(life(7), life(8, "other")))
    assert KnownLives.decode(known.encode()) == known


@pytest.mark.parametrize("seed", range(50))
def test_no_crash_and_no_late_answer_is_taken_for_going_back(seed: int) -> None:
    """Runs begin lives, are killed at each point, and some proposals arrive after their process is gone (S1)."""
    chance = random.Random(seed)
    known: KnownLives | None = None
    node: tuple[LifeNode, int] | None = None
    late: list[tuple[LifeNode, int | None]] = []
    for run in range(200):
        if late and chance.random() < 0.5:
            proposed, version = late.pop(chance.randrange(len(late)))
            if version == (None if node is None else node[1]):
                node = (proposed, 0 if version is None else version + 1)
        seen = None if node is None else node[0]
        assert judge(known, seen, tree=None, directory=HERE) is Fit.FITS
        at = None if seen is None else seen.life
        begun = Life(id=f"run {run}", count=(known or KnownLives()).next_after(at))
        assert at is None or begun.count > at.count
        known = (known or KnownLives()).proposing(begun, found=at, tree=None, fits=True)
        version = None if node is None else node[1]
        match chance.randrange(4):
            case 0:
                continue
            case 1:
                late.append((LifeNode(life=begun, directory=HERE), version))
                continue
        node = (LifeNode(life=begun, directory=HERE), 0 if version is None else version + 1)
        if chance.random() < 0.5:
            known = KnownLives.confirming(begun, tree=None)


@pytest.mark.parametrize("seed", range(50))
def test_a_side_that_went_back_by_a_whole_life_is_always_found(seed: int) -> None:
    """Copies are taken at random times; one of the two sides is put back after at least one more life."""
    chance = random.Random(seed)
    known, node, copies = KnownLives(), None, []
    for run in range(40):
        copies.append((known, node))
        at = None if node is None else node.life
        begun = Life(id=f"run {run // 3}", count=known.next_after(at))
        known = known.proposing(begun, found=at, tree=None, fits=True)
        node = LifeNode(life=begun, directory=HERE)
        known = known if chance.random() < 0.3 else KnownLives.confirming(begun, tree=None)
    for earlier, then in copies[1:-1]:
        assert judge(earlier, node, tree=None, directory=HERE) is Fit.DIRECTORY_BEHIND
        if known.confirmed is not None:
            assert judge(known, then, tree=None, directory=HERE) in {Fit.STORE_BEHIND, Fit.FITS}
            assert judge(known, then, tree=None, directory=HERE) is Fit.STORE_BEHIND or then.life in {
                known.confirmed,
                *known.proposed,
            }
