"""What `regnum status` shows: one document for programs, a few tables for people."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regnum_client.commands.invocation import Output, note
from regnum_client.commands.rendering import emit_one, emit_rows
from regnum_client.commands.status.figures import LINE_COLUMNS, figure_rows, line, stray_line, stray_totals
from regnum_client.commands.status.lags import LAG_COLUMNS, SHOWN_MAX
from regnum_client.commands.status.services import (
    METADATA_COLUMNS,
    QUOTA_COLUMNS,
    metadata_line,
    metadata_rows,
    quota_line,
    quota_row,
)

if TYPE_CHECKING:
    from regnum_client.admin.health.views import HealthView
    from regnum_client.commands.status.asking import Found

PROCESS_COLUMNS = ("name", "role", "state", "pid", "addresses")
PARTITION_COLUMNS = ("topic", "partition", "troubles", "for_s", "leader", "isr", "replicas", "reason")
FIELDS = (
    "controller",
    "complete",
    "topics",
    "partitions",
    "metadata_version",
    "metadata_versions_behind",
    "brokers",
    "troubles",
    "troubled_partitions",
    "overdue_orders",
    "damaged",
    "damaged_count",
    "order_overdue_s",
    "trouble_overdue_s",
    "releases",
    "inter_broker_protocol",
)
"""What the controller says, in the document."""
KAFKA_NAMED = 3
"""Brokers are enough to begin with; programs are told of all."""
DAMAGED_COLUMNS = ("topic", "partition", "damaged_because", "what_to_do")
RELEASE_COLUMNS = ("process", "release", "protocols", "refused")
ORDER_COLUMNS = ("broker", "orders", "oldest_age_s", "partitions")
BROKER_COLUMNS = (
    *("broker", "state", "draining", "replicas"),
    *("offline_replicas", "orders_outstanding", "oldest_order_age_s"),
)


def show(processes: Sequence[Mapping[str, Any]], found: "Found", problems: Sequence[str], output: Output) -> None:
    """Show it.

    Args:
        processes: rows of the processes of this machine's cluster.
        found: what was answered.
        problems: what is wrong, in words.
        output: in which form.
    """
    if output is not Output.TABLE:
        emit_one(document(processes, found, problems), output)
        return
    health, services = found.health, found.services
    rows = figure_rows(found.figures, health)
    emit_one({"status": headline(rows, problems, found.lags.words)}, output)
    _processes(processes)
    if health is not None:
        emit_one(_summary(health), output)
    _table([line(one) for one in rows], LINE_COLUMNS)
    for row in rows:
        if row.get("not_ready_because"):
            note(f"broker {row['broker']} is not ready: {row['not_ready_because']}")
    if strays := stray_line(stray_totals(found.figures)):
        note(strays)
    _table([metadata_line(one) for one in metadata_rows(services.propagation)], METADATA_COLUMNS)
    quotas = quota_row(services.quotas)
    _table([] if quotas is None else [quota_line(quotas)], QUOTA_COLUMNS)
    _table(found.lags.rows[:SHOWN_MAX], LAG_COLUMNS)
    if found.lags.unknown_because:
        note(f"how far groups are behind is not known: {found.lags.unknown_because}")
    if found.kafka:
        note(f"for clients of Kafka: bootstrap.servers={','.join(found.kafka[:KAFKA_NAMED])}")
    if health is None:
        return
    if services.unknown_because:
        note(f"what metadata processes and quotas do is not known: {services.unknown_because}")
    _trouble(health)


def headline(brokers: Sequence[Mapping[str, Any]], problems: Sequence[str], lag: str = "") -> str:
    """The first line: whether all is well, else what is wrong first. ``lag``: who is furthest behind, in words."""
    ready = sum(not (row.get("not_ready_because") or row.get("error")) for row in brokers)
    said = ", ".join(filter(None, (f"{ready} of {len(brokers)} brokers ready", lag)))
    if not problems:
        return f"all is well, {said}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"not well, {said}: {problems[0]}{more}"


def _processes(processes: Sequence[Mapping[str, Any]]) -> None:
    if not processes:
        return
    emit_rows(processes, Output.TABLE, columns=PROCESS_COLUMNS)
    note("")
    if elsewhere := [str(row["name"]) for row in processes if row["state"] == "elsewhere"]:
        note(f"not started by `regnum up`, and not ended by `regnum down`: {', '.join(elsewhere)}")


def _trouble(health: "HealthView") -> None:
    _table([row for row in _brokers(health) if _is_worth_a_line(row)], BROKER_COLUMNS)
    if len({one.release for one in health.releases}) > 1 or any(one.refused for one in health.releases):
        _table(_releases(health), RELEASE_COLUMNS)
    _table(_orders(health), ORDER_COLUMNS)
    _table(_partitions(health), PARTITION_COLUMNS)
    _table(_damaged(health), DAMAGED_COLUMNS)
    if not health.complete:
        note("the controller is new and has not looked at all partitions yet; look again in a moment")


def document(processes: Sequence[Mapping[str, Any]], found: "Found", problems: Sequence[str]) -> dict[str, Any]:
    """Everything, for programs; what nobody could say is null."""
    known: dict[str, Any] = dict.fromkeys(FIELDS) if found.health is None else _fields(found.health)
    lags = found.lags
    return {
        "healthy": not problems,
        "problems": list(problems),
        "processes": [dict(row) for row in processes],
        "broker_figures": figure_rows(found.figures, found.health),
        "strays": stray_totals(found.figures),
        "metadata_figures": metadata_rows(found.services.propagation),
        "quota_figures": quota_row(found.services.quotas),
        "kafka": list(found.kafka),
        "group_lags": [dict(row) for row in lags.rows] if lags.asked and not lags.unknown_because else None,
        **known,
    }


def _fields(health: "HealthView") -> dict[str, Any]:
    values = (
        {"id": health.controller, "epoch": health.controller_epoch},
        health.complete,
        health.topics,
        health.partitions,
        health.metadata_version,
        {str(id): behind for id, behind in health.metadata_behind.items()},
        _brokers(health),
        {
            trouble.value: {"partitions": count.partitions, "for_long": count.for_long}
            for trouble, count in health.troubles.items()
        },
        _partitions(health),
        _orders(health),
        _damaged(health),
        health.damaged_count,
        health.order_overdue_s,
        health.trouble_overdue_s,
        _releases(health),
        _protocol(health),
    )
    return dict(zip(FIELDS, values, strict=True))


def _summary(health: "HealthView") -> dict[str, Any]:
    away = sum(not broker.registered for broker in health.brokers)
    return {
        "controller": f"{health.controller} (epoch {health.controller_epoch})",
        "brokers": f"{len(health.brokers) - away} live, {away} away",
        "topics": health.topics,
        "partitions": health.partitions,
        **{
            trouble.value: f"{count.partitions}, {count.for_long} of them for more than {health.trouble_overdue_s:g} s"
            for trouble, count in health.troubles.items()
        },
        "overdue_orders": sum(one.orders for one in health.overdue_orders),
        **({"releases": _releases_in_short(health), "protocol": _protocol_in_short(health)} if health.releases else {}),
    }


def _releases(health: "HealthView") -> list[dict[str, Any]]:
    return [
        {
            "process": f"{one.role}-{one.id}",
            "release": one.release,
            "protocols": f"{one.protocol_min} to {one.protocol_max}",
            "refused": one.refused or None,
        }
        for one in health.releases
    ]


def _releases_in_short(health: "HealthView") -> str:
    counted = Counter(one.release for one in health.releases)
    return ", ".join(f"{release} ({count})" for release, count in sorted(counted.items()))


def _protocol(health: "HealthView") -> dict[str, int | None] | None:
    in_force, highest = health.inter_broker_protocol, health.inter_broker_protocol_max
    if in_force is None:
        return None
    return {"in_force": in_force, "may_be_raised_to": highest if highest is not None and highest > in_force else None}


def _protocol_in_short(health: "HealthView") -> str:
    known = _protocol(health)
    if known is None:
        return "not known"
    further = known["may_be_raised_to"]
    return f"{known['in_force']}" + ("" if further is None else f" (all processes speak {further}: it may be raised)")


def _brokers(health: "HealthView") -> list[dict[str, Any]]:
    return [
        {
            "broker": broker.id,
            "state": "away" if not broker.registered else "stopping" if broker.stopping else "live",
            "replicas": broker.replicas,
            "draining": broker.draining,
            "offline_replicas": broker.offline_replicas,
            "orders_outstanding": broker.orders_outstanding,
            "oldest_order_age_s": broker.oldest_order_age_s,
            "clock_ahead_s": broker.clock_ahead_s,
            "expiry_held_back": broker.expiry_held_back,
            "disk_free_bytes": broker.disk_free_bytes,
            "disk_size_bytes": broker.disk_size_bytes,
            "refuses_writes_because": broker.refuses_writes_because or None,
            "turns_away_because": broker.turns_away_because or None,
        }
        for broker in health.brokers
    ]


def _is_worth_a_line(broker: Mapping[str, Any]) -> bool:
    return (
        broker["state"] != "live"
        or broker["draining"]
        or bool(broker["offline_replicas"] or broker["orders_outstanding"])
    )


def _partitions(health: "HealthView") -> list[dict[str, Any]]:
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "troubles": [trouble.value for trouble in one.troubles],
            "for_s": round(one.age_s, 1),
            "leader": None if one.leader < 0 else one.leader,
            "isr": list(one.isr),
            "replicas": list(one.replicas),
            "reason": one.reason or None,
        }
        for one in health.troubled_partitions
    ]


def _orders(health: "HealthView") -> list[dict[str, Any]]:
    return [
        {
            "broker": one.broker,
            "orders": one.orders,
            "oldest_age_s": round(one.oldest_age_s, 1),
            "partitions": list(one.partitions),
        }
        for one in health.overdue_orders
    ]


def _damaged(health: "HealthView") -> list[dict[str, Any]]:
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "damaged_because": one.reason,
            "what_to_do": one.advice,
        }
        for one in health.damaged
    ]


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    if rows:
        note("")
        emit_rows(rows, Output.TABLE, columns=columns)
