"""A broker tells why it turns connections away, when that changes."""

from regnum_broker.figures.listeners_watch import ListenersWatch
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock


class Expired:
    """Certificates."""

    def __init__(self) -> None:
        self.because = ""
        self.asked_s: list[float] = []

    def look(self, now_s: float) -> str:
        """See ExpiredCertificates."""
        self.asked_s.append(now_s)
        return self.because


async def test_each_change_is_told_once_with_all_reasons() -> None:
    expired, clock, metrics, told = Expired(), FakeClock(wall_ms=5_000), Metrics(), list[str]()
    crowded = ""
    watch = ListenersWatch(expired=expired, crowded=lambda: crowded, tell=told.append, clock=clock, metrics=metrics)

    def shown() -> float:
        (one,) = [one for one in metrics.read() if one.instrument is instruments.CONNECTIONS_REFUSED]
        return next(value for _, value in one.numbers)

    await watch.look()
    assert (told, shown(), expired.asked_s) == ([], 0, [5.0])
    expired.because = "the certificate expired"
    await watch.look()
    await watch.look()
    assert (told, shown()) == (["the certificate expired"], 1)
    crowded = "more than 9"
    await watch.look()
    expired.because = crowded = ""
    await watch.look()
    assert told[1:] == ["the certificate expired; more than 9", ""]
    assert shown() == 0


async def test_without_certificates_only_connections_count() -> None:
    told: list[str] = []
    watch = ListenersWatch(
        expired=None, crowded=lambda: "more than 9", tell=told.append, clock=FakeClock(), metrics=Metrics()
    )
    await watch.look()
    assert told == ["more than 9"]
