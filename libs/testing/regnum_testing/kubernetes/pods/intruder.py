"""Somebody who is to be refused: connects to the cluster, tries to create a topic, and tells what became of it.

    intruder.py TOPIC        one line of JSON on stdout

It runs from a ConfigMap in a Pod of the product's own image, with what the Pod's variables say it shows.
"""

import asyncio
import json
import os
import sys
from typing import Final

from regnum_client import Admin
from regnum_service.errors import RegnumError, reason_of

CONNECT_S: Final = 5.0
"""A policy that drops packets lets nothing through within that time, nor later."""
TRIED_S: Final = 60.0
"""The SDK gives up after half of that, and says why."""


async def reaches(bootstrap: str) -> bool:
    """Whether the network lets a connection through."""
    host, _, port = bootstrap.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host, int(port))
    except OSError:  # TimeoutError among them
        return False
    writer.close()
    return True


async def main(topic: str) -> None:
    """What the head of this file says."""
    connected = await reaches(os.environ["REGNUM_BOOTSTRAP"].partition(",")[0])
    done, reason, message = False, "", ""
    try:
        async with asyncio.timeout(TRIED_S), Admin(client_id="judge-intruder") as admin:
            await admin.create_topic(topic)
        done = True
    except RegnumError as error:
        reason, message = reason_of(error.code), str(error)
    except TimeoutError:
        reason = "no answer"
    told = {"connected": connected, "done": done, "reason": reason, "message": message[:300]}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
