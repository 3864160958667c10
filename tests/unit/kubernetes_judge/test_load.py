"""What the load counts inside the cluster, and what is made of its lines outside."""

import array
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from regnum_testing.kubernetes import observed
from regnum_testing.kubernetes.intruders import ADMIN, GUEST, STRANGER, intruders
from regnum_testing.kubernetes.load_pod import Load, pod
from regnum_testing.kubernetes.observed import Gate
from regnum_testing.kubernetes.overlay import OverlayError, cpus, read_overlay, with_image
from regnum_testing.kubernetes.pods.load import UNKNOWN, BelowMinimum, ReadBack, Written, ended, number_of
from regnum_testing.kubernetes.pods.signals import processes_of

Printed = pytest.CaptureFixture[str]


def told(printed: Printed) -> list[dict[str, object]]:
    """Lines so far."""
    return [json.loads(line) for line in printed.readouterr().out.splitlines()]


def log_of(*records: tuple[int, int], acknowledged: list[int]) -> ReadBack:
    """A log of (number, offset), and the offsets that were acknowledged."""
    back = ReadBack(array.array("q", acknowledged))
    for number, offset in records:
        back.record(number, offset)
    return back


def test_a_log_with_every_record_once_where_it_was_said_has_nothing_wrong() -> None:
    back = log_of((0, 0), (1, 1), (2, 2), acknowledged=[0, 1, 2])
    assert (back.found, back.lost, back.doubled, back.moved, back.out_of_order, back.invented) == (3, 0, 0, 0, 0, 0)


def test_lost_doubled_moved_swapped_and_invented_records_are_each_found() -> None:
    assert log_of((0, 0), (2, 1), acknowledged=[0, 1, 1]).lost == 1
    assert log_of((0, 0), (0, 1), acknowledged=[0]).doubled == 1
    assert log_of((0, 0), (1, 2), acknowledged=[0, 1]).moved == 1
    assert log_of((1, 0), (0, 1), acknowledged=[1, 0]).out_of_order == 1
    assert log_of((0, 0), (7, 1), (UNKNOWN, 2), acknowledged=[0]).invented == 2


def test_a_record_that_was_given_up_may_be_there_or_not() -> None:
    for records in (((0, 0),), ((0, 0), (1, 1))):
        back = log_of(*records, acknowledged=[0, UNKNOWN])
        assert (back.lost, back.moved, back.invented) == (0, 0, 0)


def test_a_stall_is_told_when_it_ends_and_short_waits_are_not(capsys: Printed) -> None:
    written = Written(3, 100.0)
    written.acknowledged(0, 100.1)
    written.acknowledged(1, 100.2)
    written.acknowledged(2, 101.7)
    assert told(capsys) == [{"kind": "stall", "begin": 100.2, "end": 101.7, "partition": 3}]
    assert written.without_s(102.0) == pytest.approx(0.3)


def test_a_refused_record_keeps_its_number(capsys: Printed) -> None:
    written = Written(0, 100.0)
    written.refused("time is over", 160.0)
    written.acknowledged(0, 160.05)
    assert list(written.offsets) == [UNKNOWN, 0]
    assert written.failed == 1
    assert [one["kind"] for one in told(capsys)] == ["failed", "stall"]


def test_a_partition_below_its_minimum_is_told_with_the_fewest_that_were_in_sync(capsys: Printed) -> None:
    below = BelowMinimum()
    below.state("judge-load", 0, 2, 1.0)
    below.state("judge-load", 0, 1, 2.0)
    below.state("judge-load", 0, 0, 3.0)
    below.state("judge-load", 0, 1, 4.0)
    assert told(capsys) == []
    below.state("judge-load", 0, 2, 5.0)
    below.state("judge-load", 1, 1, 6.0)
    below.end(8.0)
    assert [(one["partition"], one["begin"], one["end"], one["in_sync"]) for one in told(capsys)] == [
        (0, 2.0, 5.0, 0),
        (1, 6.0, 8.0, 1),
    ]
    assert below.states == 6, "that no more will come is none"


async def test_a_watcher_that_ended_before_its_time_is_no_silence() -> None:
    async def watches() -> None:
        await asyncio.Event().wait()

    async def fails() -> None:
        raise ValueError("no more")

    watching = [asyncio.create_task(watches()) for _ in range(2)]
    await ended(watching)
    assert all(one.cancelled() for one in watching)
    watching = [asyncio.create_task(one()) for one in (watches, fails)]
    await asyncio.wait(watching, return_when=asyncio.FIRST_COMPLETED)
    with pytest.raises(ValueError, match="no more"):
        await ended(watching)
    assert watching[0].cancelled()


def test_numbers_are_read_from_the_loads_own_records_only() -> None:
    assert number_of(b"12 ....") == 12
    assert [number_of(value) for value in (None, b"", b"bbbb", b"-1 x")] == [UNKNOWN] * 4


def line(**fields: object) -> str:
    return json.dumps(fields)


SECOND = line(
    kind="second", at=105.0, acked=9, failed=0, worst_ms=5, silent_ms=20, late_ms=1, read=9, read_again=0,
    under_replicated=0, controller=2,
)  # fmt: skip


def test_lines_of_the_load_become_what_was_seen_and_others_are_kept() -> None:
    load = Load()
    assert not load.complete
    for one in (
        SECOND,
        line(kind="stall", begin=1.0, end=2.0, partition=4),
        "Traceback",
        line(kind="events", error="x"),
    ):
        load.line(one, now=100.0)
    assert load.complete
    assert load.controller == 2
    assert load.stalls[0].length_s == 1.0
    assert load.other == ["Traceback", line(kind="events", error="x")]


def test_what_became_of_the_records_is_told_with_how_much_was_seen_of_partitions() -> None:
    load = Load()
    counts = {one: number for number, one in enumerate(observed.ReadBack.__slots__)}
    load.line(line(kind="verdict", at=1.0, **counts), now=100.0)
    assert load.read_back == observed.ReadBack(**counts)
    assert counts["states"] > 0


def test_the_clock_of_the_load_is_taken_from_the_line_that_came_fastest() -> None:
    load = Load()
    load.line(SECOND, now=101.5)
    load.line(SECOND, now=100.0)
    load.line(SECOND, now=103.0)
    assert load.ahead_s == 5.0


def test_the_load_is_not_complete_while_a_partition_waits_or_lacks_a_replica() -> None:
    for change in ({"silent_ms": 3_000}, {"under_replicated": 1}, {"under_replicated": -1}):
        load = Load()
        load.line(json.dumps(json.loads(SECOND) | change), now=100.0)
        assert not load.complete, change


def test_processes_are_found_by_the_container_in_their_cgroup(tmp_path: Path) -> None:
    for number, group in (("7", "/kubepods/pod1/abc"), ("12", "/kubepods/pod1/abc"), ("9", "/kubepods/pod2/def")):
        (tmp_path / number).mkdir()
        (tmp_path / number / "cgroup").write_text(f"4:memory:{group}\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "13").mkdir()
    assert processes_of("abc", tmp_path) == [7, 12]
    assert processes_of("none", tmp_path) == []


def spec_of(credential: str) -> dict[str, Any]:
    found: Any = pod("one", ["true"], "image", {"A": "b"}, node="", credential=credential)["spec"]
    return {
        "variables": {one["name"] for one in found["containers"][0]["env"]},
        "secrets": [one["secret"] for one in found["volumes"] if "secret" in one],
    }


def test_a_pod_shows_what_it_was_given_and_a_stranger_has_no_key_at_all() -> None:
    assert spec_of("") == {"variables": {"A"}, "secrets": []}
    admin = spec_of(ADMIN)
    assert admin["variables"] == {"A", "REGNUM_TLS_CA", "REGNUM_TLS_CERTIFICATE", "REGNUM_TLS_KEY"}
    assert admin["secrets"] == [{"secretName": ADMIN, "defaultMode": 0o440}]
    stranger = spec_of(STRANGER)
    assert stranger["variables"] == {"A", "REGNUM_TLS_CA"}
    assert [one["items"] for one in stranger["secrets"]] == [[{"key": "ca.crt", "path": "ca.crt"}]]


def test_who_is_to_be_refused_depends_on_what_clients_show() -> None:
    assert [one.gate for one in intruders({})] == [Gate.NETWORK]
    assert [(one.credential, one.labelled) for one in intruders({})] == [("", False)]
    closed = intruders({ADMIN: {}, GUEST: {}})
    assert [(one.gate, one.credential, one.labelled) for one in closed] == [
        (Gate.NETWORK, ADMIN, False),
        (Gate.HANDSHAKE, STRANGER, True),
        (Gate.RULES, GUEST, True),
    ]
    assert [one.gate for one in intruders({ADMIN: {}})] == [Gate.NETWORK, Gate.HANDSHAKE]


def test_only_the_pod_for_signals_sees_the_nodes_processes() -> None:
    load, signals = (pod("one", ["true"], "image", {"A": "b"}, node=node)["spec"] for node in ("", "node-1"))
    assert isinstance(load, dict)
    assert isinstance(signals, dict)
    assert "hostPID" not in load
    assert load["securityContext"]["runAsNonRoot"]
    assert signals["hostPID"]
    assert signals["nodeName"] == "node-1"


def test_a_pod_asks_for_processor_time_so_that_starting_pods_do_not_make_it_late() -> None:
    found: Any = pod("one", ["true"], "image", {}, node="")["spec"]
    assert cpus(found["containers"][0]["resources"]["requests"]["cpu"]) >= 0.25


OVERLAY = """
kind: StatefulSet
metadata: {name: regnum-broker, namespace: regnum}
spec:
  replicas: 3
  template:
    metadata: {labels: {app.kubernetes.io/component: broker}}
    spec:
      containers:
        - {name: broker, image: "regnum:1", resources: {requests: {cpu: 250m}}}
---
kind: StatefulSet
metadata: {name: regnum-etcd, namespace: regnum}
spec:
  template:
    metadata: {labels: {app.kubernetes.io/component: etcd}}
    spec: {containers: [{name: etcd, image: etcd, resources: {requests: {cpu: "1"}}}]}
"""


def test_an_overlay_says_how_many_pods_there_are_and_what_they_claim() -> None:
    overlay = read_overlay("dev", OVERLAY)
    assert (overlay.namespace, overlay.image, overlay.pods, overlay.cpu_requested) == ("regnum", "regnum:1", 4, 1.75)
    assert [cpus(one) for one in ("100m", "2", "0.5")] == [0.1, 2.0, 0.5]


def test_another_image_is_for_the_services_and_not_for_the_store() -> None:
    other = with_image(read_overlay("dev", OVERLAY), "registry/regnum:next")
    assert read_overlay("dev", other.text) == other
    assert other.image == "registry/regnum:next"
    assert "image: etcd\n" in other.text


def test_an_overlay_says_which_secrets_it_needs_and_whether_it_has_them_made() -> None:
    plain = read_overlay("dev", OVERLAY)
    assert (plain.tls, plain.secrets, plain.own_certificates) == (False, frozenset(), False)
    mounted = "containers:\n        - {env: [{name: REGNUM_CLIENT_TLS_CERTIFICATE, value: x}], "
    text = OVERLAY.replace(
        "containers:\n        - {", "volumes: [{name: tls, secret: {secretName: regnum-broker-tls}}]\n      " + mounted
    )
    closed = read_overlay("production", text)
    assert (closed.tls, closed.secrets, closed.own_certificates) == (True, frozenset({"regnum-broker-tls"}), False)
    made = text + "---\nkind: Certificate\nmetadata: {name: regnum-broker}\n"
    assert read_overlay("production", made).own_certificates
    named = text + "---\nkind: Namespace\nmetadata: {name: regnum}\n"
    assert "kind: Namespace" in read_overlay("production", named).namespace_text
    assert "StatefulSet" not in read_overlay("production", named).namespace_text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OVERLAY.replace("component: broker", "component: other"), "no StatefulSet"),
        (
            OVERLAY.replace("name: regnum-etcd, namespace: regnum", "name: regnum-etcd, namespace: other"),
            "one namespace",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(OverlayError, match=said):
        read_overlay("dev", text)
