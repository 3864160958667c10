"""Metrics: what is counted, and what Prometheus reads of it."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from regnum_telemetry.exposition import CLUSTER, Exposition
from regnum_telemetry.instruments import INSTRUMENTS, Instrument, Kind
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.instruments import election as election_instruments
from regnum_telemetry.instruments import process as process_instruments
from regnum_telemetry.metrics import OTHER, SERIES_MAX, Metrics


def exposed(metrics: Metrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """What Prometheus would have after a scrape: samples by name and labels."""
    text, _ = Exposition("regnum-test", "7", metrics).render("")
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def test_a_counter_is_shown_with_its_labels() -> None:
    metrics = Metrics()
    metrics.counter(election_instruments.ELECTIONS, "isr").add(3)
    metrics.counter(election_instruments.ELECTIONS, "unclean").add()
    metrics.counter(election_instruments.ELECTIONS, "isr").add(2)
    assert exposed(metrics)["regnum_controller_leader_elections_total"] == {
        (("from", "isr"),): 5.0,
        (("from", "unclean"),): 1.0,
    }


def test_a_value_on_a_bound_counts_below_it_and_buckets_add_up() -> None:
    metrics = Metrics()
    histogram = metrics.histogram(process_instruments.LOOP_LAG, "main")
    for value in (0.0, 0.001, 0.0011, 0.05, 7.0):
        histogram.record(value)
    samples = exposed(metrics)
    buckets = {dict(labels)["le"]: count for labels, count in samples["regnum_loop_lag_seconds_bucket"].items()}
    assert (buckets["0.001"], buckets["0.005"], buckets["0.05"], buckets["1.0"], buckets["+Inf"]) == (2, 3, 4, 4, 5)
    assert samples["regnum_loop_lag_seconds_count"] == {(("loop", "main"),): 5.0}
    assert samples["regnum_loop_lag_seconds_sum"][(("loop", "main"),)] == pytest.approx(7.0521)


def test_a_gauge_is_read_when_somebody_asks_and_left_out_when_it_says_nothing() -> None:
    metrics, value = Metrics(), [1.0]
    metrics.observe(election_instruments.CONTROLLER_ACTIVE, lambda: value[0])
    metrics.observe(election_instruments.CONTROLLER_EPOCH, lambda: None)
    metrics.observe_all(election_instruments.ORDERS_OUTSTANDING, lambda: [(("2",), 40), (("3",), 1)])
    exposition = Exposition("regnum-test", "1", metrics)
    assert "regnum_controller_active 1.0" in exposition.render("")[0].decode()
    value[0] = 0.0
    text = exposition.render("")[0].decode()
    assert "regnum_controller_active 0.0" in text
    assert 'regnum_controller_orders_outstanding{broker="2"} 40.0' in text
    assert not re.search(r"^regnum_controller_epoch ", text, re.MULTILINE)


def test_labels_from_outside_cannot_make_series_without_end() -> None:
    metrics = Metrics()
    for number in range(SERIES_MAX + 50):
        metrics.counter(election_instruments.ELECTIONS, f"kind-{number}").add()
    metrics.observe_all(election_instruments.ORDERS_OUTSTANDING, lambda: [((str(id),), 1) for id in range(5_000)])
    samples = exposed(metrics)
    elections = samples["regnum_controller_leader_elections_total"]
    assert len(elections) == SERIES_MAX + 1
    assert elections[(("from", OTHER),)] == 50
    assert len(samples["regnum_controller_orders_outstanding"]) == SERIES_MAX


def test_another_kind_or_number_of_labels_is_refused() -> None:
    metrics = Metrics()
    for wrong in (
        lambda: metrics.counter(process_instruments.LOOP_LAG, "main"),
        lambda: metrics.histogram(process_instruments.LOOP_LAG),
        lambda: metrics.counter(election_instruments.ELECTIONS, "isr", "elr"),
        lambda: metrics.observe(election_instruments.ORDERS_OUTSTANDING, lambda: 1),
    ):
        with pytest.raises(ValueError, match="with labels"):
            wrong()


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda instrument: instrument.name)
def test_the_name_we_give_is_the_name_that_prometheus_gets(instrument: Instrument) -> None:
    metrics = Metrics()
    labels = tuple("x" for _ in instrument.labels)
    match instrument.kind:
        case Kind.COUNTER:
            metrics.counter(instrument, *labels).add()
        case Kind.HISTOGRAM:
            metrics.histogram(instrument, *labels).record(1)
        case Kind.GAUGE:
            metrics.observe_all(instrument, lambda: [(labels, 1)])
    series = f"{instrument.prometheus}_count" if instrument.kind is Kind.HISTOGRAM else instrument.prometheus
    assert exposed(metrics)[series] == {tuple(sorted(zip(instrument.labels, labels, strict=True))): 1.0}


def test_names_are_ours_and_unique() -> None:
    names = [instrument.prometheus for instrument in INSTRUMENTS]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"(regnum|rpc)_[a-z_]+", name) for name in names)
    assert all(instrument.bounds == tuple(sorted(instrument.bounds)) for instrument in INSTRUMENTS)
    assert all(bool(instrument.bounds) == (instrument.kind is Kind.HISTOGRAM) for instrument in INSTRUMENTS)


def test_the_process_says_who_it_is_and_what_it_uses() -> None:
    samples = exposed(Metrics())
    (target,) = samples["target_info"]
    assert dict(target)["service_name"] == "regnum-test"
    assert dict(target)["service_instance_id"] == "7"
    assert samples["process_resident_memory_bytes"][()] > 0


def test_every_series_says_which_cluster_it_is_of_once_the_process_knows() -> None:
    metrics, known = Metrics(), [""]
    metrics.counter(election_instruments.ELECTIONS, "isr").add()
    metrics.histogram(process_instruments.LOOP_LAG, "main").record(0.0)
    exposition = Exposition("regnum-test", "1", metrics, cluster=lambda: known[0])
    for cluster in ("", "c1"):
        known[0] = cluster
        text, _ = exposition.render("")
        samples = [one for family in text_string_to_metric_families(text.decode()) for one in family.samples]
        assert {"regnum_loop_lag_seconds_bucket", "process_open_fds", "python_info", "target_info"} < {
            sample.name for sample in samples
        }
        assert {sample.labels.get(CLUSTER, "") for sample in samples} == {cluster}


def test_no_metric_has_a_label_of_its_own_that_is_called_like_the_cluster() -> None:
    assert all(CLUSTER not in instrument.labels for instrument in INSTRUMENTS)


def test_both_forms_say_the_same() -> None:
    metrics = Metrics()
    metrics.counter(instruments.ISR_SHRINKS).add(4)
    text, content_type = Exposition("regnum-test", "1", metrics).render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert b"regnum_broker_isr_shrinks_total 4.0" in text
    assert text.endswith(b"# EOF\n")
