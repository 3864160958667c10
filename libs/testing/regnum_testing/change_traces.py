"""A whole change of leadership as spans of every process that takes part, with every boundary known beforehand.

The same change can be written with clocks that differ, with a process' spans left out, or in another order: what is
told of it must not depend on that more than it says.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from regnum_telemetry import conventions as names

from regnum_testing.otlp_lines import Spans, at, line, succession

CLIENT: Final = ("client", "7")
READER: Final = ("reader", "8")
CONTROLLER: Final = ("regnum-election", "1")
STAYING: Final = ("regnum-broker", "3")
LEADERS: Final = {"orders/0": ("regnum-broker", "2"), "orders/1": ("regnum-broker", "3")}

STEPS_MS: Final = {
    "noticed": 20.0, "detected": 25.0, "fenced": 3.0, "decided": 1.0, "written": 4.0, "order_sent": 1.0,
    "received": 2.0, "leads": 6.0, "learned": 9.0, "sent": 1.0, "appended": 5.0, "acknowledged": 8.0,
}  # fmt: skip
"""The chain of ``orders/0``, in milliseconds; that of ``orders/1`` is the same but for ``leads``, which takes 2 ms."""

FULL_STEPS_MS: Final = {
    "failed": 6.0, "noticed": 14.0, "detected": 25.0, "fenced": 3.0, "decided": 1.0, "written": 4.0, "order_sent": 1.0,
    "received": 2.0, "leads": 6.0, "learned": 9.0, "in_sync": 7.0, "backoff": 11.0, "sent": 1.0, "appended": 5.0,
    "replicated": 3.0, "acknowledged": 5.0,
}  # fmt: skip
"""The same as one trace with one root, where every boundary is told."""

PLANNED_STEPS_MS: Final = {
    step: ms for step, ms in FULL_STEPS_MS.items() if step not in {"failed", "detected", "fenced"}
}
"""The same of a planned change: nothing failed, and nothing is fenced."""

_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
SETTLED_MS: Final = 40.0
"""The root ends so long after the last acknowledgement."""


class ChangeTrace:
    """Spans of one kill as they were before there was one root for every change, by process."""

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

    def write(
        self,
        folder: Path,
        *,
        ahead_ms: Mapping[str, float] | None = None,
        without: Sequence[str] = (),
        resource: Mapping[str, str] | None = None,
    ) -> None:
        """Write a file for each process; ``resource`` is what each says of itself besides."""
        folder.mkdir(parents=True, exist_ok=True)
        for process, spans in self.documents(ahead_ms=ahead_ms, without=without).items():
            kind, instance = process.split()
            service = kind if kind in {"client", "reader"} else f"regnum-{kind}"
            text = line(spans, service=service, instance=instance, resource=resource)
            (folder / f"{service}-{instance}.jsonl").write_text(f"{text}\n", encoding="utf-8")

    def _add(self, of: tuple[str, str], name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
        kind, parent = more.pop("kind", "internal"), more.pop("parent", None)
        span = self._spans.add(name, start, end, **more)
        span["kind"] = _KINDS[kind]
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


class FullChangeTrace(ChangeTrace):
    """Spans of one change as one trace: a root for any kind, an opening record, insides, and both kinds of clients."""

    def __init__(
        self,
        trace: int = 1,
        *,
        kind: str = names.KIND_BROKER_FAILURE,
        steps_ms: Mapping[str, float] | None = None,
        before_ms: float = 0.0,
        links: Sequence[str] = (),
        partitions: int = 2,
    ) -> None:
        self._kind = kind
        self._links = [{"traceId": other, "spanId": f"{1:016x}"} for other in links]
        self._partitions = partitions
        of_kind = FULL_STEPS_MS if kind == names.KIND_BROKER_FAILURE else PLANNED_STEPS_MS
        super().__init__(trace, steps_ms=of_kind if steps_ms is None else steps_ms, before_ms=before_ms)

    def unfinished(self) -> None:
        """The controller died: its root was never written, nor what lasted until then."""
        lasting = (names.LEADERSHIP_CHANGE, names.ORDER, names.DISPATCH)
        self._spans.made[:] = [span for span in self._spans.made if span["name"] not in lasting]

    def wait_under_a_leader_that_stays(self, partition: int, *, received_ms: float, ended_ms: float) -> None:
        """Its producer waited for a replica that was gone, since ``0``; its order made leaders too.

        Args:
            partition: of the topic ``orders``.
            received_ms: when the leader has the order that frees it.
            ended_ms: when the producer has its acknowledgement; the records are committed 1 ms before.
        """
        (root,) = [span for span in self._spans.made if span["name"] == names.LEADERSHIP_CHANGE]
        about = {
            names.TOPIC: "orders", names.PARTITION: str(partition), names.LEADER_EPOCH: 4, names.BROKER: 3,
            names.OFFSET: 70,
        }  # fmt: skip
        call = self._add(CONTROLLER, names.LEADER_AND_ISR, received_ms - 1, ended_ms, kind="client", parent=root)
        served = self._add(STAYING, names.LEADER_AND_ISR, received_ms, ended_ms, kind="server", parent=call)
        self._add(STAYING, names.BECOME_LEADER, received_ms, ended_ms + 9, parent=served, **{names.BROKER: 3})
        self._add(STAYING, names.HIGH_WATERMARK_WAIT, 5, ended_ms - 1, parent=served, **about)
        outage = {
            **about, names.RETRIED: False, names.LAST_ACK_LEADER_EPOCH: 4, names.SENT_UNIX_NANO: at(5),
            names.LEARNED_UNIX_NANO: at(-9_000), names.WAITING_SINCE_UNIX_NANO: at(4),
        }  # fmt: skip
        self._add(CLIENT, names.OUTAGE, 0, ended_ms, kind="producer", parent=served, **outage)

    def _build(self, ms: dict[str, float], before_ms: float) -> None:
        # Moments of the controller, after the last acknowledgement.
        failure = "failed" in ms
        failed = before_ms + ms.get("failed", 0.0)
        noticed = failed + ms["noticed"]
        detected = noticed + ms.get("detected", 0.0)
        fenced = detected + ms.get("fenced", 0.0)
        decided = fenced + ms["decided"]
        written = decided + ms["written"]
        ordered = written + ms["order_sent"]
        parts = ("received", "leads", "learned", "in_sync", "backoff", "sent", "appended", "replicated", "acknowledged")
        ended = ordered + sum(ms.get(step, 0.0) for step in parts)
        known = {
            names.CHANGE_KIND: self._kind, names.VICTIM_KIND: "broker", names.VICTIM: 1, names.CONTROLLER_ID: 1,
            names.NOTICED_UNIX_NANO: at(noticed),
        }  # fmt: skip
        if failure:
            known |= {
                names.LEGACY_NAME: names.FAILOVER, names.CAUSE: names.CAUSE_LIFELINE,
                names.FAILED_UNIX_NANO: at(failed), names.FAILED_SEEN_BY: "lifeline 1",
            }  # fmt: skip
        boundaries = {
            names.DECIDED_UNIX_NANO: at(decided), names.WRITTEN_UNIX_NANO: at(written),
            names.DISPATCHED_UNIX_NANO: at(ordered + 20), names.ACKNOWLEDGED_UNIX_NANO: at(ended),
        }  # fmt: skip
        if failure:
            boundaries |= {names.DETECTED_UNIX_NANO: at(detected), names.FENCED_UNIX_NANO: at(fenced)}
        about = {**known, names.PARTITIONS: self._partitions, names.COMPLETE: True, **boundaries}
        begin = failed if failure else noticed
        root = self._add(CONTROLLER, names.LEADERSHIP_CHANGE, begin, ended + SETTLED_MS, **about)
        opened = self._add(CONTROLLER, names.CHANGE_OPENED, noticed, noticed, parent=root, **known)
        for span in (root, opened):
            span["links"] = self._links
        if failure:
            self._add(CONTROLLER, names.UNDETECTED, failed, noticed, parent=root)
            self._add(CONTROLLER, names.DETECTION, noticed, detected, parent=root)
            fence = self._add(CONTROLLER, names.FENCE, detected, fenced, parent=root)
            self._add(CONTROLLER, names.STORE_WRITE, detected, fenced, parent=fence)
        self._add(CONTROLLER, names.DECISION, fenced, decided, parent=root)
        self._add(CONTROLLER, names.STORE_WRITE, decided, written, parent=root)
        self._add(CONTROLLER, names.DISPATCH, written, ordered + 20, parent=root)
        for (partition, leader), leads in zip(LEADERS.items(), (ms["leads"], 2.0), strict=True):
            self._lead(partition, leader, {**ms, "leads": leads}, root=root, before=before_ms, at_ms=(written, ordered))

    def _lead(
        self,
        partition: str,
        leader: tuple[str, str],
        ms: Mapping[str, float],
        *,
        root: dict[str, Any],
        before: float,
        at_ms: tuple[float, float],
    ) -> None:
        topic, _, number = partition.partition("/")
        broker = int(leader[1])
        about = {
            names.TOPIC: topic, names.PARTITION: number, names.LEADER_EPOCH: 5, names.OFFSET: 900, names.BROKER: broker,
        }  # fmt: skip
        written, ordered = at_ms
        received = ordered + ms["received"]
        led = received + ms["leads"]
        learned = led + ms["learned"]
        in_sync = learned + ms.get("in_sync", 0.0)
        paused = in_sync + ms.get("backoff", 0.0)
        sent = paused + ms["sent"]
        appended = sent + ms["appended"]
        covered = appended + ms.get("replicated", 0.0)
        acknowledged = covered + ms["acknowledged"]
        order = self._add(CONTROLLER, names.ORDER, written, led + 2, parent=root, **{names.BROKER: broker})
        call = self._add(CONTROLLER, names.LEADER_AND_ISR, ordered, led + 2, kind="client", parent=order)
        served = self._add(leader, names.LEADER_AND_ISR, received, led + 1, kind="server", parent=call)
        named = {names.BROKER: broker, names.FIRST: partition}
        leading = self._add(leader, names.BECOME_LEADER, received, led, parent=served, **named)
        quarter = ms["leads"] / 4
        for position, name in enumerate(
            (names.LEADER_JOURNAL, names.LEADER_EPOCHS, names.LEADER_ROLES, names.LEADER_FETCHERS)
        ):
            begin = received + position * quarter
            self._add(leader, name, begin, begin + quarter, parent=leading)
        self._add(leader, names.FIRST_APPEND, led, appended, parent=served, **about)
        if "in_sync" in ms:
            self._add(leader, names.MIN_ISR_WAIT, led, in_sync, parent=served, **about)
        if "replicated" in ms:
            self._add(leader, names.HIGH_WATERMARK_WAIT, appended, covered, parent=served, **about)
        outage = {
            **about, names.RETRIED: True, names.LEARNED_UNIX_NANO: at(learned), names.SENT_UNIX_NANO: at(sent),
            names.WAITING_SINCE_UNIX_NANO: at(before + 1),
        }  # fmt: skip
        wait = self._add(CLIENT, names.OUTAGE, before, acknowledged, kind="producer", parent=root, **outage)
        self._add(CLIENT, names.LEARN, before + 2, learned, parent=wait)
        if "backoff" in ms:
            self._add(CLIENT, names.BACKOFF, in_sync, paused, parent=wait)
        send = self._add(
            CLIENT, names.SEND_TO_TOPIC.format(topic=topic), sent, acknowledged, kind="client", parent=wait
        )
        of = {name: about[name] for name in (names.TOPIC, names.PARTITION)}
        self._add(leader, names.FIRST_ANSWER, sent + ms["appended"] / 2, covered, kind="server", parent=send, **of)
        reader = {**about, names.LEARNED_UNIX_NANO: at(learned), names.RETRIED: True, names.ERROR_TYPE: "UNAVAILABLE"}
        read = self._add(READER, names.CONSUMER_OUTAGE, before, learned + 4, kind="consumer", parent=root, **reader)
        self._add(leader, names.FIRST_ANSWER, learned + 1, learned + 3, kind="server", parent=read, **of)
        for span in (wait, read):
            span["links"] = [{"traceId": self.trace_id, "spanId": served["spanId"]}]


def _shifted(span: Mapping[str, Any], ns: int) -> dict[str, Any]:
    shifted: dict[str, Any] = json.loads(json.dumps(span))
    for name in ("startTimeUnixNano", "endTimeUnixNano"):
        shifted[name] = str(int(shifted[name]) + ns)
    for pair in shifted["attributes"]:
        if pair["key"].endswith("_unix_nano"):
            pair["value"]["intValue"] = str(int(pair["value"]["intValue"]) + ns)
    return shifted


def golden(folder: Path) -> None:
    """Clients in traces of their own, both forms of roots, clocks that differ, and spans that came twice."""
    FullChangeTrace(1).write(folder / "1", ahead_ms={"broker 2": 500.0})
    FullChangeTrace(2, kind=names.KIND_BALANCE, before_ms=2_000).write(folder / "2", without=["client 7"])
    ChangeTrace(3, before_ms=4_000).write(folder / "3")
    dead = FullChangeTrace(4, before_ms=6_000, links=[f"{1:032x}"])
    dead.unfinished()
    dead.write(folder / "4")
    dead.write(folder / "5")
    apart = Spans(6)
    named = {names.TOPIC: "t", names.PARTITION: "0", names.RETRIED: True, names.FAILOVER_TRACE_ID: f"{1:032x}"}
    apart.add(names.OUTAGE, -20, 230, **named)
    (folder / "apart.jsonl").write_text(f"{line(apart.made, service='producer')}\n", encoding="utf-8")
    (folder / "six.jsonl").write_text(f"{line(succession(7, 60))}\n", encoding="utf-8")


def two_releases(folder: Path) -> None:
    """Two clusters over three days: six kills of each release, of which the second takes 20 ms more to lead; and moves.

    Each change has a folder of its own. Everything says its release; all but the clients say their cluster.
    """
    day_ms = 86_400_000.0
    for trace in range(1, 13):
        later = trace > 6
        kind = names.KIND_BALANCE if trace in {6, 12} else names.KIND_BROKER_FAILURE
        made = FullChangeTrace(
            trace,
            kind=kind,
            # The third begins a second before midnight.
            before_ms=(trace - 1) // 4 * day_ms + trace * 60_000 + (57_419_000 - 3 * 60_000 if trace == 3 else 0),
            steps_ms={
                step: ms + trace + (20 if step == "leads" and later else 0)
                for step, ms in (PLANNED_STEPS_MS if kind == names.KIND_BALANCE else FULL_STEPS_MS).items()
            },
        )
        about = {names.SERVICE_VERSION: "1.1.0" if later else "1.0.0"}
        cluster = {names.CLUSTER_ID: "blue" if trace % 2 else "green/1"}
        ahead_ms = {"broker 2": 500.0 if trace == 4 else 0.0}
        made.write(
            folder / f"{trace:02}", ahead_ms=ahead_ms, without=["client 7", "reader 8"], resource=about | cluster
        )
        services = [f"{kind} {n}" for kind, n in (CONTROLLER, STAYING, *LEADERS.values())]
        of_services = [name.removeprefix("regnum-") for name in services]
        made.write(folder / f"{trace:02}", ahead_ms=ahead_ms, without=of_services, resource=about)
