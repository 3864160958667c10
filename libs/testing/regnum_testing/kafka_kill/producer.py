"""The producer of aiokafka as ``regnum_testing.kafka_kill`` runs it; other clients' programs do the same.

python -m regnum_testing.kafka_kill.producer BOOTSTRAP TOPIC COUNT RATE

It sends the numbers from 0 to COUNT - 1 to partition 0, RATE in a second, each once. When half of them are
acknowledged it says HALF; in the end, as JSON, who it is, how many were acknowledged, how many failed, and the longest
time between two acknowledgements.
"""

import asyncio
import json
import sys
import time
from typing import Final

import aiokafka

HALF: Final = "HALF"


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

    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        began_s = time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, began_s + number / rate - time.monotonic()))
            (await producer.send(topic, b"%d" % number, partition=0)).add_done_callback(done)
    client = f"aiokafka {aiokafka.__version__}"
    return {"client": client, "acked": acked, "failed": failed, "stall_ms": round(longest_s * 1000)}


if __name__ == "__main__":
    _, _servers, _topic, _count, _rate = sys.argv
    sys.stdout.write(json.dumps(asyncio.run(produce(_servers, _topic, int(_count), float(_rate)))) + "\n")
