"""Which release this process is, and whether it may take part in a cluster.

The protocol in force (``/feature``) is never lowered, so that a process which does not speak it can only do harm or
wait for ever: it ends with words before it registers. The controller refuses such a broker besides; it may be of a
release that does not look.
"""

from typing import Final

import structlog
from regnum_coordination.errors import ConnectionLoss, NoNode
from regnum_coordination.port import Store
from regnum_coordination.timing import Backoff
from regnum_model import features
from regnum_model.nodes import LaterVersionError, MalformedNodeError
from regnum_model.protocols import KNOWN, ReleaseInfo, refusal
from regnum_telemetry.build import this_build

from regnum_service.clock import Clock
from regnum_service.errors import StartRefusedError

THIS: Final = ReleaseInfo(release=this_build().version, protocols=KNOWN)
"""This release, as registrations say it."""


async def require_spoken(store: Store, clock: Clock, build: ReleaseInfo = THIS) -> None:
    """Whether a process may register, before it does. Waits while the store does not answer.

    Raises:
        StartRefusedError: the protocol in force is none that it speaks.
        SessionExpired: the session ended meanwhile.
    """
    backoff, attempts = Backoff(), 0
    while True:
        try:
            node = await store.get(features.PATH, current=True)
            in_force = features.Features.decode(node.data).inter_broker_protocol
        except NoNode:
            # A cluster that has not begun.
            return
        except LaterVersionError as error:
            raise StartRefusedError(str(error)) from None
        except MalformedNodeError as error:
            # Nobody can say what is in force: the controller reports the node, and goes by what it knows.
            structlog.get_logger("release").warning(
                "protocol in force not readable", path=features.PATH, reason=str(error)
            )
            return
        except ConnectionLoss:
            attempts += 1
            await clock.sleep(backoff.pause_s(attempts))
            continue
        if reason := refusal(in_force, build):
            raise StartRefusedError(reason)
        return
