"""`regnum restore`: a backup into a store. The whole file is checked before anything is written."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from regnum_coordination.backup.restoring import (
    WRITES_TOGETHER,
    Found,
    Restore,
    RestoreRefusedError,
    look,
    objection,
)
from regnum_coordination.port import Store
from regnum_model.backup.lines import End, Header, MalformedBackupError
from regnum_model.backup.nodes import RestoreMark
from regnum_model.backup.plan import Choices, Report, RestorePlan, Write, logs_of
from regnum_model.ids import BrokerId, encode_id
from regnum_service.clock import Clock, SystemClock
from regnum_service.slices import Turns

from regnum_client.commands.backups.backup import back_up
from regnum_client.commands.backups.files import BackupFile, entries_of, lines_of

LINES_PER_TURN: Final = 200
"""Lines read between two turns of the event loop: the session with the store has to be kept meanwhile."""

BROKERS_NAMED: Final = 50
"""Brokers that a person is told of; programs hear of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for."""

    file: Path
    """The backup."""
    execute: bool
    """Whether it is done; otherwise it is only told."""
    replace: bool
    """Whether a tree that stands there is to go."""
    without_tokens: bool
    """Whether delegation tokens are left out."""
    more_brokers: frozenset[int]
    """Brokers that joined after the backup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was done, or would be."""

    row: Mapping[str, object]
    """For programs, and in a few lines for people."""
    words: tuple[str, ...]
    """What people should know and do."""
    objection: str | None
    """Why it could not be done as the store is now; only where it was not to be done yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    header: Header
    end: End
    plan: RestorePlan


async def restore_from(
    store: Store, wish: Wish, progress: Callable[[int], None], *, clock: Clock | None = None
) -> Restored:
    """Check, look, and with ``execute`` do it.

    Raises RestoreRefusedError, MalformedBackupError, OSError and what the store raises.
    """
    time = SystemClock() if clock is None else clock
    found = await look(store)
    checked = await _checked(wish, time.wall_ms(), found)
    against = objection(found, checked.header.cluster_id, replace_tree=wish.replace)
    if not wish.execute:
        plan = checked.plan
        turns = Turns(LINES_PER_TURN)
        for entry in entries_of(wish.file):
            await turns.took()
            for _ in plan.take(entry):
                pass
        for _ in plan.finish():
            pass
        return _told(checked, plan, found, against, time.wall_ms(), left_out=(), done=False)
    if against is not None:
        raise RestoreRefusedError(f"{against}. Nothing was changed")
    return await _execute(store, wish, checked, found, progress, time)


async def restore_in_place(store: Store, url: str, wish: Wish, progress: Callable[[int], None]) -> Restored:
    """The same with the tree that is in the store, which is backed up into the wish's file first.

    Without ``execute`` the file goes.
    """
    found = await look(store)
    against = objection(found, found.cluster_id or "", replace_tree=True)
    if against is not None and wish.execute:
        raise RestoreRefusedError(f"{against}. Nothing was changed")
    await back_up(store, url, str(wish.file), BackupFile(wish.file), progress)
    try:
        return await restore_from(store, replace(wish, replace=True), progress)
    finally:
        if not wish.execute:
            wish.file.unlink()


async def _checked(wish: Wish, now_ms: int, found: Found) -> _Checked:
    """The file, read to its end once: nothing is written of one that is damaged."""
    header: Header | None = None
    end: End | None = None
    plan: RestorePlan | None = None
    turns = Turns(LINES_PER_TURN)
    for one in lines_of(wish.file):
        await turns.took()
        match one:
            case Header():
                header = one
                plan = _plan(one, wish, now_ms, found)
            case End():
                end = one
            case _ if plan is not None:
                plan.prepare(one)
    if header is None or end is None or plan is None:
        raise MalformedBackupError(f"{wish.file} has no first and no last line: it is no backup")
    return _Checked(header=header, end=end, plan=plan)


def _plan(header: Header, wish: Wish, now_ms: int, found: Found) -> RestorePlan:
    brokers = frozenset(map(BrokerId, wish.more_brokers))
    choices = Choices(
        without_tokens=wish.without_tokens,
        more_brokers=brokers,
        age_ms=max(now_ms - header.taken_ms, 0),
        former=found.former,
    )
    return RestorePlan(header, choices)


async def _execute(
    store: Store, wish: Wish, checked: _Checked, found: Found, progress: Callable[[int], None], clock: Clock
) -> Restored:
    plan = checked.plan
    mark = RestoreMark(
        whole=False,
        run=encode_id(uuid.uuid4()),
        backup=checked.end.sha256,
        taken_ms=checked.header.taken_ms,
        since_ms=clock.wall_ms(),
        former=found.former,
    )
    restore = Restore(store, clock, mark=mark, progress=progress)
    await restore.begin(found, plan.controller_epoch)
    waiting: list[Write] = []
    end: End | None = None
    # Read and checked again: the file may have changed since it was looked at.
    turns = Turns(LINES_PER_TURN)
    for one in lines_of(wish.file):
        await turns.took()
        if isinstance(one, End):
            end = one
        if isinstance(one, End | Header):
            continue
        waiting += plan.take(one)
        if len(waiting) >= WRITES_TOGETHER:
            await restore.write(waiting)
            waiting = []
    if end != checked.end:
        raise RestoreRefusedError(f"{wish.file} was changed while it was restored; run it again with a whole one")
    waiting += plan.finish()
    for start in range(0, len(waiting), WRITES_TOGETHER):
        await restore.write(waiting[start : start + WRITES_TOGETHER])
    whole = replace(mark, brokers=frozenset(plan.brokers), logs=logs_of(plan.logs))
    await restore.end(plan.cluster_id, mark=whole)
    return _told(checked, plan, found, None, clock.wall_ms(), left_out=restore.left_out, done=True)


def _told(
    checked: _Checked,
    plan: RestorePlan,
    found: Found,
    against: str | None,
    now_ms: int,
    *,
    left_out: "list[str] | tuple[str, ...]",
    done: bool,
) -> Restored:
    header, report = checked.header, plan.report
    brokers = sorted(plan.brokers)
    row = {
        "restored": done,
        "cluster_id": header.cluster_id,
        "backup_of": header.store,
        "taken": datetime.fromtimestamp(header.taken_ms / 1000, tz=UTC).isoformat(timespec="seconds"),
        "age_s": max(now_ms - header.taken_ms, 0) // 1000,
        "nodes": report.nodes,
        "topics": report.topics,
        "partitions": report.partitions,
        "settings": report.settings,
        "quotas": report.quotas,
        "acls": report.acls,
        "tokens": report.tokens,
        "deletions": report.deletions,
        "controller_epoch": report.controller_epoch,
        "waits_for_brokers": brokers,
        "replaces_topics": found.topics if found.has_tree and not found.is_cut_off else 0,
        "goes_on_from_one_cut_off": found.is_cut_off,
        "notices": {what: {"count": report.counts[what], "paths": paths} for what, paths in report.notices.items()},
        "not_taken_by_the_store": list(left_out),
        "objection": against,
    }
    shown = ", ".join(map(str, brokers[:BROKERS_NAMED])) + (", ..." if len(brokers) > BROKERS_NAMED else "")
    words = [*_notices(report), *(f"not taken by the store: {one}" for one in left_out)]
    if done:
        words += [
            f"restored. Start every process with this store, brokers {shown} among them: no partition has a leader",
            "until each of them has said what its log holds. `regnum status` shows which are missing; for one that",
            "never comes back: `regnum brokers unregister ID`, then `regnum partitions recover TOPIC` for the rest",
        ]
    else:
        words += [
            "what was acknowledged since the backup is not lost: the newest log of each partition leads, once brokers",
            f"{shown} have reported. Brokers that joined since: name each with --broker",
            "topics made since are not in it: their files stay on the disks. Topics deleted since come back; rights,",
            f"settings and quotas are those of then{', and tokens that were revoked since' if report.tokens else ''}",
        ]
        words.append("nothing was changed; stop every process of the cluster and run it again with --execute")
    return Restored(row=row, words=tuple(words), objection=against)


def _notices(report: Report) -> list[str]:
    lines: list[str] = []
    for what, paths in report.notices.items():
        more = report.counts[what] - len(paths)
        # Any program can give a node any name, and what is shown goes to a terminal.
        named = [path if path.isprintable() else repr(path) for path in paths]
        lines.append(f"{what}: {', '.join(named)}{f' and {more} more' if more else ''}")
    return lines
