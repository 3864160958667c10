"""What the settings of a process ask for: rules, or nobody who says no."""

from regnum_service.access.acls.opening import AccessControl
from regnum_service.access.authorization import EverybodyMay
from regnum_service.clock import SystemClock
from regnum_service.settings import ServiceSettings
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics


def test_denied_calls_are_shown_from_0_where_there_are_no_rules() -> None:
    metrics = Metrics()
    told = ServiceSettings(coordination="memory://x", _cli_parse_args=[])
    control = AccessControl.of(told, clock=SystemClock(), metrics=metrics)
    assert isinstance(control.authorizer, EverybodyMay)
    assert instruments.ACL_DENIALS in {reading.instrument for reading in metrics.read()}
