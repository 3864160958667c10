"""A service process that has failpoints says so at its start."""

import structlog

from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.failpoints.failpoint import FailpointError
from regnum_service.failpoints.trigger import FailpointTrigger


def announce(failpoints: FailpointTrigger | None) -> None:
    """Warn of them; nothing where there are none. Raises StartRefusedError when the file has what is no failpoint."""
    if failpoints is None:
        return
    try:
        failpoints.check()
    except FailpointError as error:
        raise StartRefusedError(f"--failpoint-file: {error}", exit_status=ExitStatus.WRONG_USE) from error
    structlog.get_logger("failpoints").warning(
        "failpoints are on: this process kills, stops or delays itself at the step that the file names. Never in "
        "production; start it without --failpoint-file (or REGNUM_FAILPOINT_FILE)",
        file=str(failpoints.file),
    )
