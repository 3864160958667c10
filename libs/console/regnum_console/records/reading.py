"""Reading records: a page of a partition, what comes, and a search.

A search has a bound on its work and tells how far it is; it ends when its page is closed, for its stream does.
"""

from collections.abc import Sequence
from typing import Final

from regnum_client.consumer.positions import LATEST, Start
from regnum_client.records import ConsumedRecord, TopicPartition

from regnum_console.context import Context
from regnum_console.html import Markup, el
from regnum_console.live.streams import Done, Part, Parts
from regnum_console.port import Reader
from regnum_console.records.filtering import RecordFilter
from regnum_console.records.words import records_table, size_of

PAGE_WAIT_S: Final = 3.0
"""How long the records of a page are waited for."""
READ_S: Final = 0.5
"""How long one read waits."""
TAIL_KEPT: Final = 50
"""Tables of new records that stay on a page."""
TAIL_RECORDS: Final = 50
"""Records of one of them."""
SEARCH_BYTES_MAX: Final = 4 * 10**9
"""Bytes of keys, values and headers that a search goes through."""
SEARCH_S_MAX: Final = 300.0
"""How long a search takes at most."""
FOUND_MAX: Final = 200
"""Records that it shows; then it ends."""
PROGRESS_S: Final = 0.5
"""How often it says how far it is."""


async def page_of(
    context: Context, reader: Reader, partition: TopicPartition, start: int, end: int, count: int
) -> tuple[list[ConsumedRecord], int]:
    """Up to ``count`` records from an offset on, before ``end``; and where the next page begins."""
    await reader.assign(partition.topic, partitions=[partition.partition], start=start)
    records: list[ConsumedRecord] = []
    deadline_s = context.clock.monotonic() + PAGE_WAIT_S
    while len(records) < count and reader.position(partition) < end and context.clock.monotonic() < deadline_s:
        records += await reader.read(records_max=count - len(records), timeout_s=READ_S)
    return records, reader.position(partition)


async def tail(context: Context, topic: str, partitions: Sequence[int] | None, form: str) -> Parts:
    """What comes from now on, the newest on top; of a flood only the newest of each turn are shown."""
    if context.follows.locked():
        yield Part("new", el("p", "Other pages follow records: this one begins when one of them is closed."))
    async with context.follows, context.ports.read() as reader:
        await reader.assign(topic, partitions=partitions, start=LATEST)
        while True:
            records = await reader.read(records_max=1_000, timeout_s=READ_S)
            if not records:
                yield None
                continue
            skipped = len(records) - TAIL_RECORDS
            note = el("p", f"{skipped:,} records before these", class_="quiet") if skipped > 0 else Markup("")
            html = el("div", records_table(list(reversed(records[-TAIL_RECORDS:])), form), note)
            yield Part("new", html, "prepend", TAIL_KEPT)
            # A page cannot show more, and a browser takes its time to do so.
            await context.streams.pause(READ_S)


async def search(
    context: Context, topic: str, partitions: Sequence[int] | None, start: Start, wanted: RecordFilter, form: str
) -> Parts:
    """Records that a filter finds, up to where the partitions end now."""
    if context.searches.locked():
        yield Part("progress", el("p", "Other searches are running: this one begins when one of them ends."))
    async with context.searches, context.ports.read() as reader:
        assigned = await reader.assign(topic, partitions=partitions, start=start)
        ends = dict(await reader.end_offsets(assigned))
        work = Work({one: reader.position(one) for one in assigned}, ends)
        begin_s = said_s = context.clock.monotonic()
        while True:
            records = await reader.read(records_max=1_000, timeout_s=READ_S)
            hits = [one for one in records if one.offset < ends[TopicPartition(one.topic, one.partition)]]
            work.records += len(records)
            work.bytes += sum(map(size_of, records))
            hits = [one for one in hits if wanted.finds(one)][: FOUND_MAX - work.found]
            work.found += len(hits)
            positions = {one: reader.position(one) for one in assigned}
            now_s = context.clock.monotonic()
            over = work.over(positions, now_s - begin_s)
            if hits:
                yield Part("found", records_table(hits, form), "append")
            if over:
                yield Done(el("p", f"{over} {work.words(positions)}", class_="good"))
                return
            if now_s - said_s >= PROGRESS_S:
                said_s = now_s
                yield Part("progress", work.progress(positions))
            elif not hits:
                yield None


class Work:
    """How far a search is."""

    def __init__(self, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> None:
        """Only assigns: where it begins and ends in each partition."""
        self._starts: Final = starts
        self._ends: Final = ends
        self.records = 0
        """Records that it went through."""
        self.bytes = 0
        """Their keys, values and headers."""
        self.found = 0
        """Records that it found."""

    def share(self, positions: dict[TopicPartition, int]) -> float:
        """Part of the offsets that lie behind it, 0 to 1."""
        whole = sum(max(0, end - self._starts[one]) for one, end in self._ends.items())
        done = sum(max(0, min(positions[one], end) - self._starts[one]) for one, end in self._ends.items())
        return done / whole if whole else 1.0

    def over(self, positions: dict[TopicPartition, int], seconds: float) -> str:
        """Why it is over; empty: it is not."""
        if self.found >= FOUND_MAX:
            return f"{FOUND_MAX} records are found, and more are not looked for: begin behind them."
        if all(positions[one] >= end for one, end in self._ends.items()):
            return "Everything was searched."
        if self.bytes >= SEARCH_BYTES_MAX or seconds >= SEARCH_S_MAX:
            return "That was as much as one search may go through: begin where it ended, or choose a partition."
        return ""

    def words(self, positions: dict[TopicPartition, int]) -> str:
        """What it has done."""
        share = 100 * self.share(positions)
        return f"{self.found:,} found in {self.records:,} records, {self.bytes / 1e6:,.1f} MB, {share:.0f} % of them."

    def progress(self, positions: dict[TopicPartition, int]) -> Markup:
        """The same while it goes on."""
        bar = el("progress", max=100, value=round(100 * self.share(positions)), aria_label="Searched")
        return el("p", bar, " ", self.words(positions))
