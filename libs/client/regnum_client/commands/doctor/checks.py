"""What `regnum doctor` finds in what was gathered. Pure.

Goals: every check says what it looked at, also where all is well; what could not be looked at is told as such and never
taken for well; each finding that is not well has one thing to do.

Example: of a broker with 40 of 1,000 GB free comes ``warning: disk, broker 2: 40 GB of 1 TB free (4%)`` with the advice
to make room.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from regnum_service.errors import RegnumError

from regnum_client.commands.doctor.findings import Finding, Gathered, Level
from regnum_client.commands.status.figures import size, span

if TYPE_CHECKING:
    from regnum_client.admin.health.figures import BrokerFigures

DISK_FREE_MIN: Final = 0.1
"""Share of a disk that should be free."""
FILES_MAX: Final = 0.8
"""Share of the descriptors that may be in use."""
CLOCK_S_MAX: Final = 1.0
"""Difference of two clocks from which on it is told."""
LOOP_LAG_S_MAX: Final = 1.0
"""Lateness of an event loop from which on it is told."""
CERTIFICATE_S_MIN: Final = 30 * 86_400.0
"""Time that a certificate should still be valid."""
NAMED_MAX: Final = 20
"""Findings of one kind, the worst; a cluster may have thousands of partitions in one trouble."""
_BADNESS: Final[Mapping[Level, int]] = {level: number for number, level in enumerate(Level)}


def examine(gathered: Gathered) -> list[Finding]:
    """All findings, those of a check together; a check that finds nothing wrong has one that says so."""
    found: list[Finding] = []
    for name, check in CHECKS.items():
        some = list(check(gathered))
        named = [one for one in some if one.level is not Level.OK] or some
        named.sort(key=lambda one: _BADNESS[one.level], reverse=True)
        found += named[:NAMED_MAX]
        if len(named) > NAMED_MAX:
            found.append(
                Finding(
                    check=name,
                    level=named[0].level,
                    subject="more",
                    evidence=f"{len(named) - NAMED_MAX} more of the kind",
                    advice="see to the first ones, then look again",
                )
            )
    return found


def _finding(check: str, level: Level, subject: str, evidence: str, advice: str = "") -> Finding:
    return Finding(check=check, level=level, subject=subject, evidence=evidence, advice=advice)


def _figures(gathered: Gathered) -> "Iterator[tuple[int, BrokerFigures]]":
    for id, one in sorted(gathered.status.figures.items()):
        if not isinstance(one, RegnumError):
            yield id, one


def _processes(gathered: Gathered) -> Iterator[Finding]:
    rows = gathered.status.processes
    for row in rows:
        if row.state.value in {"exited", "paused"}:
            verb = "resume" if row.state.value == "paused" else "start"
            yield _finding("processes", Level.ERROR, row.name, row.state.value, f"regnum {verb} {row.name}")
    if not rows:
        yield _finding("processes", Level.OK, "this machine", "the cluster is not one of `regnum up` here")
    else:
        yield _finding("processes", Level.OK, "this machine", f"{len(rows)} processes")


def _reach(gathered: Gathered) -> Iterator[Finding]:
    health, figures = gathered.status.health, gathered.status.figures
    if health is None:
        yield _finding(
            "reach",
            Level.ERROR,
            "controller",
            gathered.status.reason,
            "start an election process, or see its log; until then nothing is changed and no leader moves",
        )
    for id, one in sorted(figures.items()):
        if isinstance(one, RegnumError):
            yield _finding(
                "reach", Level.ERROR, f"broker {id}", one.message, "see the log of the broker, and the network"
            )
    for id, broker in _figures(gathered):
        if broker.not_ready_because:
            yield _finding(
                "reach", Level.WARNING, f"broker {id}", broker.not_ready_because, "wait; look at its log if it lasts"
            )
        elif not broker.lifeline_open:
            yield _finding(
                "reach",
                Level.WARNING,
                f"broker {id}",
                "the controller does not hear it",
                "look at the network between both: until then its death is noticed late",
            )
    if not figures:
        yield _finding("reach", Level.ERROR, "brokers", "none answers", "see --bootstrap, and the logs of the brokers")
    if health is not None:
        away = [one.id for one in health.brokers if not one.registered and one.replicas]
        for id in away:
            yield _finding(
                "reach",
                Level.ERROR,
                f"broker {id}",
                "it has replicas and is away",
                f"start it; if it never comes back, `regnum brokers drain {id}`",
            )
        yield _finding(
            "reach", Level.OK, "cluster", f"controller {health.controller} and {len(figures)} brokers answer"
        )


def _versions(gathered: Gathered) -> Iterator[Finding]:
    health = gathered.status.health
    if health is None:
        yield _unknown("versions")
        return
    for one in health.releases:
        if one.refused:
            yield _finding(
                "versions",
                Level.ERROR,
                f"{one.role} {one.id}",
                f"release {one.release} is refused: {one.refused}",
                "install a release that speaks the protocol in force",
            )
    releases = sorted({one.release for one in health.releases})
    if len(releases) > 1:
        yield _finding(
            "versions",
            Level.WARNING,
            "processes",
            f"releases {', '.join(releases)} side by side",
            "end the upgrade: bring all to one release",
        )
    in_force, most = health.inter_broker_protocol, health.inter_broker_protocol_max
    if in_force is not None and most is not None and in_force < most and len(releases) == 1:
        yield _finding(
            "versions",
            Level.WARNING,
            "protocol",
            f"{in_force} is in force, and all speak {most}",
            f"regnum configs set --cluster inter.broker.protocol.version={most}, when there is no way back any more",
        )
    yield _finding("versions", Level.OK, "processes", f"release {', '.join(releases) or 'not told'}")


def _clocks(gathered: Gathered) -> Iterator[Finding]:
    health = gathered.status.health
    if health is None:
        yield _unknown("clocks")
        return
    known = [one for one in health.brokers if one.clock_ahead_s is not None]
    for one in known:
        ahead_s = one.clock_ahead_s or 0.0
        if one.expiry_held_back or abs(ahead_s) > CLOCK_S_MAX:
            level = Level.ERROR if one.expiry_held_back else Level.WARNING
            held = "; nothing expires by time there" if one.expiry_held_back else ""
            direction = "behind" if ahead_s < 0 else "ahead of"
            yield _finding(
                "clocks",
                level,
                f"broker {one.id}",
                f"{abs(ahead_s):.1f} s {direction} the controller{held}",
                "set the clock right on the machine that is wrong (NTP)",
            )
    yield _finding("clocks", Level.OK, "brokers", f"{len(known)} clocks agree with the controller's")


def _store(gathered: Gathered) -> Iterator[Finding]:
    health = gathered.status.health
    for id, broker in _figures(gathered):
        if broker.store_trouble:
            yield _finding(
                "store",
                Level.ERROR,
                f"broker {id}",
                broker.store_trouble,
                "see that a majority of the store's servers runs",
            )
    if health is None:
        yield _unknown("store")
        return
    if health.store_went_back:
        yield _finding(
            "store",
            Level.ERROR,
            "store",
            f"it went back to an earlier state: {health.store_went_back}",
            "stop every process, then `regnum restore --in-place`",
        )
    for why in (health.store_trouble, *health.store_warnings):
        if why:
            yield _finding("store", Level.ERROR, "store", f"it {why}", "see to the store's servers and their rights")
    for warning in health.access_warnings:
        yield _finding("store", Level.WARNING, "access", warning, "see `regnum acls` and docs/operations/access.md#tls")
    if health.damaged_count:
        yield _finding(
            "store",
            Level.ERROR,
            "store",
            f"{health.damaged_count} nodes are damaged or were edited",
            "regnum status names them, with what to do about each",
        )
    yield _finding("store", Level.OK, "store", "nothing is wrong with it as controller and brokers see it")


def _disk(gathered: Gathered) -> Iterator[Finding]:
    known = 0
    for id, broker in _figures(gathered):
        if broker.refuses_writes_because:
            yield _finding(
                "disk",
                Level.ERROR,
                f"broker {id}",
                f"it appends nothing: {broker.refuses_writes_because}",
                "make room, or lower retention.bytes of large topics (`regnum topics list --sort size`)",
            )
        free, whole = broker.disk_free_bytes, broker.disk_size_bytes
        if free is None or not whole:
            continue
        known += 1
        if free < DISK_FREE_MIN * whole:
            yield _finding(
                "disk",
                Level.WARNING,
                f"broker {id}",
                f"{size(free)} of {size(whole)} free ({100 * free / whole:.0f}%)",
                "make room, or move replicas away (`regnum partitions reassign`)",
            )
        if broker.strays:
            yield _finding(
                "disk",
                Level.WARNING,
                f"broker {id}",
                f"{broker.strays} logs ({size(broker.stray_bytes or 0)}) of topics that are not known",
                "regnum brokers strays",
            )
    yield _finding("disk", Level.OK, "brokers", f"room on {known} disks")


def _resources(gathered: Gathered) -> Iterator[Finding]:
    known = 0
    for id, broker in _figures(gathered):
        known += 1
        if broker.open_files_max and broker.open_files > FILES_MAX * broker.open_files_max:
            yield _finding(
                "resources",
                Level.WARNING,
                f"broker {id}",
                f"{broker.open_files} of {broker.open_files_max} descriptors are open",
                "raise its limit (ulimit -n)",
            )
        if broker.loop_lag_max_s > LOOP_LAG_S_MAX:
            yield _finding(
                "resources",
                Level.WARNING,
                f"broker {id}",
                f"its event loop was {broker.loop_lag_max_s:.1f} s late",
                "give the machine more processors, or fewer partitions and clients",
            )
    for one in gathered.status.health.brokers if gathered.status.health else ():
        if one.turns_away_because:
            yield _finding(
                "resources",
                Level.ERROR,
                f"broker {one.id}",
                f"it turns connections away: {one.turns_away_because}",
                "see which clients connect so often, or raise its limits",
            )
    yield _finding("resources", Level.OK, "brokers", f"descriptors and event loops of {known}")


def _partitions(gathered: Gathered) -> Iterator[Finding]:
    health = gathered.status.health
    if health is None:
        yield _unknown("partitions")
        return
    for one in health.troubled_partitions:
        if not one.troubles:
            continue
        worst = one.troubles[0].value
        bad = worst != "under-replicated"
        if not bad and one.age_s < health.trouble_overdue_s:
            continue
        reason = f": {one.reason}" if one.reason else ""
        yield _finding(
            "partitions",
            Level.ERROR if bad else Level.WARNING,
            f"{one.topic}/{one.partition}",
            f"{worst} for {span(one.age_s)}{reason}",
            f"regnum explain {one.topic}/{one.partition}",
        )
    if not health.complete:
        yield _finding(
            "partitions",
            Level.UNKNOWN,
            "controller",
            "it has not looked at every partition yet",
            "look again in a moment",
        )
    for broker in health.brokers:
        if broker.offline_replicas:
            yield _finding(
                "partitions",
                Level.ERROR,
                f"broker {broker.id}",
                f"it cannot use {broker.offline_replicas} replicas",
                f"see the log of broker {broker.id}: a disk has failed, or a replica is damaged",
            )
    yield _finding("partitions", Level.OK, "cluster", f"{health.partitions} of {health.topics} topics")


def _operations(gathered: Gathered) -> Iterator[Finding]:
    health = gathered.status.health
    if health is None:
        yield _unknown("operations")
        return
    for one in health.overdue_orders:
        yield _finding(
            "operations",
            Level.ERROR,
            f"broker {one.broker}",
            f"{one.orders} orders of the controller are not acknowledged for {span(one.oldest_age_s)}",
            f"see the log of broker {one.broker}, and whether it hangs",
        )
    for id, lag in health.metadata_behind.items():
        if lag is None:
            yield _finding(
                "operations",
                Level.UNKNOWN,
                f"metadata {id}",
                "it has acknowledged nothing yet",
                "look again in a moment",
            )
        elif lag:
            yield _finding(
                "operations", Level.WARNING, f"metadata {id}", f"{lag} versions behind", "see its log if it stays so"
            )
    if health.complete and not health.metadata_behind:
        yield _finding(
            "operations",
            Level.ERROR,
            "metadata",
            "no metadata process is registered",
            "start one: until then brokers and clients hear of no new leader",
        )
    yield _finding("operations", Level.OK, "controller", "every order was acknowledged in time")


def _lag(gathered: Gathered) -> Iterator[Finding]:
    lags = gathered.lags
    if isinstance(lags, RegnumError):
        yield _finding("lag", Level.UNKNOWN, "groups", lags.message, "see why brokers do not answer")
        return
    for group, lag in sorted(lags.items(), key=lambda one: -one[1].records):
        if lag.records > gathered.lag_max:
            yield _finding(
                "lag",
                Level.WARNING,
                f"group {group}",
                f"{lag.records} records behind in {lag.partitions} partitions",
                f"regnum groups describe {group}; add members, or find out why they are slow",
            )
    if silent := [name for name, lag in lags.items() if lag.unknown]:
        partitions = sum(lag.unknown for lag in lags.values())
        yield _finding(
            "lag",
            Level.UNKNOWN,
            "groups",
            f"{partitions} partitions of {len(silent)} groups, as {silent[0]}, do not say where they end",
            "see the checks of reach and of partitions",
        )
    worst = max((lag.records for lag in lags.values()), default=0)
    yield _finding("lag", Level.OK, "groups", f"{len(lags)} groups, at most {worst} records behind")


def _quotas(gathered: Gathered) -> Iterator[Finding]:
    usages = gathered.usages
    if isinstance(usages, RegnumError):
        yield _finding("quotas", Level.UNKNOWN, "clients", usages.message, "see why brokers do not answer")
        return
    for id, some in sorted(usages.items()):
        if isinstance(some, RegnumError):
            yield _finding("quotas", Level.UNKNOWN, f"broker {id}", some.message, "see why it does not answer")
            continue
        for one in some:
            if one.wait_s > 0:
                name = " ".join(filter(None, (one.user, one.client_id))) or "clients without a name"
                yield _finding(
                    "quotas",
                    Level.WARNING,
                    f"{name} at broker {id}",
                    f"waits {one.wait_s:.1f} s: {one.quota} {one.rate:.0f} of {one.limit:.0f}",
                    "regnum quotas top; raise the quota, or have the client do less",
                )
    waiting = gathered.status.services.quotas
    if waiting is not None and waiting.held_calls:
        yield _finding(
            "quotas",
            Level.WARNING,
            "changes of topics",
            f"{waiting.held_calls} calls wait for a quota",
            "regnum quotas top",
        )
    yield _finding("quotas", Level.OK, "clients", "no client has to wait")


def _certificates(gathered: Gathered) -> Iterator[Finding]:
    for one in gathered.certificates:
        if one.valid_s is None:
            yield _finding("certificates", Level.UNKNOWN, one.path, one.reason, "see that the file can be read here")
        elif one.valid_s < CERTIFICATE_S_MIN:
            over = one.valid_s < 0
            yield _finding(
                "certificates",
                Level.ERROR if over else Level.WARNING,
                one.path,
                f"it ended {span(-one.valid_s)} ago" if over else f"it ends in {span(one.valid_s)}",
                "replace the file; processes and clients read it again by themselves",
            )
    text = f"{len(gathered.certificates)} files are valid for long" if gathered.certificates else "no TLS is used"
    yield _finding("certificates", Level.OK, "this client", text)


def _unknown(check: str) -> Finding:
    return _finding(
        check, Level.UNKNOWN, "controller", "no controller answers that could say", "see the check of reach"
    )


CHECKS: Final[Mapping[str, Callable[[Gathered], Iterator[Finding]]]] = {
    "processes": _processes,
    "reach": _reach,
    "versions": _versions,
    "clocks": _clocks,
    "store": _store,
    "disk": _disk,
    "resources": _resources,
    "partitions": _partitions,
    "operations": _operations,
    "lag": _lag,
    "quotas": _quotas,
    "certificates": _certificates,
}
"""In the order in which they are shown: what stands before may be the cause of what follows."""
