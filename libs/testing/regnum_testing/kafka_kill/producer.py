"""The producer of aiokafka as ``regnum_testing.kafka_kill`` runs it; other clients' programs do the same.

python -m regnum_testing.kafka_kill.producer BOOTSTRAP TOPIC COUNT RATE

It sends the numbers from 0 to COUNT - 1 to partition 0, RATE in a second, each once. When half of them are
acknowledged it says HALF; in the end, as JSON, who it is, how many were acknowledged, how many failed, and the longest
time between two acknowledgements. Where the environment names files of certificates (``CERTIFICATES``), it speaks TLS.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import aiokafka
from aiokafka.helpers import create_ssl_context

HALF: Final = "HALF"
CERTIFICATES: Final = ("KAFKA_KILL_CA", "KAFKA_KILL_CERTIFICATE", "KAFKA_KILL_KEY")
"""Variables with the names of files, PEM: of the authority, and what the client shows. All are there, or none."""


def speaking(environment: Mapping[str, str]) -> dict[str, Any]:
    """How a client of aiokafka connects."""
    if CERTIFICATES[0] not in environment:
        return {}
    ca, certificate, key = (environment[name] for name in CERTIFICATES)
    context = create_ssl_context(cafile=ca, certfile=certificate, keyfile=key)
    return {"security_protocol": "SSL", "ssl_context": context}


async def produce(bootstrap: str, topic: str, count: int, rate: float) -> dict[str, object]:
    """Send them; what it says in the end."""
    acked, failed, longest_s, last_s = 0, 0, 0.0, 0.0

    def done(sent: asyncio.Future[object]) -> None:
        nonlocal acked, failed, longest_s, last_s
        if sent.cancelled() or sent.exception() is not None:
            failed += 1
            return
        now_s = time.monotonic()
        longest_s = max(longest_s, now_s - last_s) if acked else 0.0
        acked, last_s = acked + 1, now_s
        if acked == count // 2:
            sys.stdout.write(f"{HALF}\n")
            sys.stdout.flush()

    how = speaking(os.environ)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, **how) as producer:
        began_s = time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, began_s + number / rate - time.monotonic()))
            (await producer.send(topic, b"%d" % number, partition=0)).add_done_callback(done)
    client = f"aiokafka {aiokafka.__version__}"
    return {"client": client, "acked": acked, "failed": failed, "stall_ms": round(longest_s * 1000)}


if __name__ == "__main__":
    _, _servers, _topic, _count, _rate = sys.argv
    sys.stdout.write(json.dumps(asyncio.run(produce(_servers, _topic, int(_count), float(_rate)))) + "\n")
