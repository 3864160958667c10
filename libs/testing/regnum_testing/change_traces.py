"""A whole change of leadership as spans of every process that takes part, with every boundary known beforehand.

The same change can be written with clocks that differ, with a process' spans left out, or in another order: what is
told of it must not depend on that more than it says.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from regnum_telemetry import conventions as names

from regnum_testing.otlp_lines import Spans, at, line

CLIENT: Final = ("client", "7")
CONTROLLER: Final = ("regnum-election", "1")
LEADERS: Final = {"orders/0": ("regnum-broker", "2"), "orders/1": ("regnum-broker", "3")}

STEPS_MS: Final = {
    "noticed": 20.0, "detected": 25.0, "fenced": 3.0, "decided": 1.0, "written": 4.0, "order_sent": 1.0,
    "received": 2.0, "leads": 6.0, "learned": 9.0, "sent": 1.0, "appended": 5.0, "acknowledged": 8.0,
}  # fmt: skip
"""The chain of ``orders/0``, in milliseconds; that of ``orders/1`` is the same but for ``leads``, which takes 2 ms."""

_KINDS: Final = {"server": 2, "client": 3, "producer": 4}


class ChangeTrace:
    """Spans of one kill, by process."""

    def __init__(self, trace: int = 1, *, steps_ms: Mapping[str, float] = STEPS_MS, before_ms: float = 0.0) -> None:
        self._spans = Spans(trace)
        self.trace_id = self._spans.trace_id
        self._of: dict[str, tuple[str, str]] = {}
        self._build(dict(steps_ms), before_ms)

    def documents(
        self, *, ahead_ms: Mapping[str, float] | None = None, without: Sequence[str] = ()
    ) -> dict[str, list[dict[str, Any]]]:
        """Spans by process (``broker 2``). ``ahead_ms`` says by how much a process' clock is ahead."""
        found: dict[str, list[dict[str, Any]]] = {}
        for span in self._spans.made:
            service, instance = self._of[span["spanId"]]
            process = f"{service.removeprefix('regnum-')} {instance}"
            if process in without:
                continue
            shifted = _shifted(span, round((ahead_ms or {}).get(process, 0.0) * 1e6))
            found.setdefault(process, []).append(shifted)
        return found

    def write(self, folder: Path, *, ahead_ms: Mapping[str, float] | None = None, without: Sequence[str] = ()) -> None:
        """Write a file for each process."""
        folder.mkdir(parents=True, exist_ok=True)
        for process, spans in self.documents(ahead_ms=ahead_ms, without=without).items():
            kind, instance = process.split()
            service = kind if kind == "client" else f"regnum-{kind}"
            text = line(spans, service=service, instance=instance)
            (folder / f"{service}-{instance}.jsonl").write_text(f"{text}\n", encoding="utf-8")

    def _add(self, of: tuple[str, str], name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
        kind, parent = more.pop("kind", "internal"), more.pop("parent", None)
        span = self._spans.add(name, start, end, **more)
        span["kind"] = _KINDS.get(kind, 1)
        if parent is not None:
            span["parentSpanId"] = parent["spanId"]
        self._of[span["spanId"]] = of
        return span

    def _build(self, ms: dict[str, float], before_ms: float) -> None:
        # Moments of the controller, after the last acknowledgement.
        noticed = before_ms + ms["noticed"]
        detected = noticed + ms["detected"]
        fenced = detected + ms["fenced"]
        decided = fenced + ms["decided"]
        written = decided + ms["written"]
        ordered = written + ms["order_sent"]
        root_attributes = {
            names.CAUSE: names.CAUSE_LIFELINE, names.VICTIM_KIND: "broker", names.VICTIM: 1, names.PARTITIONS: 2,
            names.COMPLETE: True, names.CONTROLLER_ID: 1,
            names.DETECTED_UNIX_NANO: at(detected), names.FENCED_UNIX_NANO: at(fenced),
            names.DECIDED_UNIX_NANO: at(decided), names.WRITTEN_UNIX_NANO: at(written),
            names.DISPATCHED_UNIX_NANO: at(ordered + 20),
        }  # fmt: skip
        root = self._add(CONTROLLER, names.FAILOVER, noticed, ordered + 20, **root_attributes)
        self._add(CONTROLLER, names.DETECTION, noticed, detected, parent=root)
        fence = self._add(CONTROLLER, names.FENCE, detected, fenced, parent=root)
        self._add(CONTROLLER, names.STORE_WRITE, detected, fenced, parent=fence)
        self._add(CONTROLLER, names.DECISION, fenced, decided, parent=root)
        self._add(CONTROLLER, names.STORE_WRITE, decided, written, parent=root)
        for (partition, leader), leads in zip(LEADERS.items(), (ms["leads"], 2.0), strict=True):
            topic, _, number = partition.partition("/")
            about = {names.TOPIC: topic, names.PARTITION: number, names.LEADER_EPOCH: 5, names.OFFSET: 900}
            received = ordered + ms["received"]
            led = received + leads
            learned = led + ms["learned"]
            sent = learned + ms["sent"]
            appended = sent + ms["appended"]
            acknowledged = appended + ms["acknowledged"]
            call = self._add(CONTROLLER, names.LEADER_AND_ISR, ordered, led + 2, kind="client", parent=root)
            order = self._add(leader, names.LEADER_AND_ISR, received, led + 1, kind="server", parent=call)
            broker = int(leader[1])
            self._add(leader, names.BECOME_LEADER, received, led, parent=order, **{names.BROKER: broker})
            self._add(leader, names.FIRST_APPEND, led, appended, parent=order, **about, **{names.BROKER: broker})
            outage = {
                **about, names.BROKER: broker, names.RETRIED: True, names.LEARNED_UNIX_NANO: at(learned),
                names.SENT_UNIX_NANO: at(sent), names.WAITING_SINCE_UNIX_NANO: at(before_ms + 1),
            }  # fmt: skip
            self._add(CLIENT, names.OUTAGE, before_ms, acknowledged, kind="producer", parent=order, **outage)


def _shifted(span: Mapping[str, Any], ns: int) -> dict[str, Any]:
    shifted: dict[str, Any] = json.loads(json.dumps(span))
    for name in ("startTimeUnixNano", "endTimeUnixNano"):
        shifted[name] = str(int(shifted[name]) + ns)
    for pair in shifted["attributes"]:
        if pair["key"].endswith("_unix_nano"):
            pair["value"]["intValue"] = str(int(pair["value"]["intValue"]) + ns)
    return shifted
