"""``python -m regnum_bench.spans_client``: a producer in a process of its own, whose environment says what is traced.

Prints the processor time that so many batches took it, and what they took the brokers whose process ids it is given,
both in seconds: from its first batch to its last, without its start. Each task writes to a partition of its own and
waits for each record before the next, so that a record is a batch.
"""

import asyncio
import sys
import time

from regnum_client import Producer

from regnum_bench.processor_time import ProcessorTime


async def main(bootstrap: str, topic: str, partitions: int, records: int, size: int, brokers: list[int]) -> None:
    """Write, and say what it took."""
    value = bytes(size)

    async with Producer(bootstrap) as producer:

        async def write(partition: int, count: int) -> None:
            for _ in range(count):
                await (await producer.send(topic, value, partition=partition))

        async def write_all(count: int) -> None:
            await asyncio.gather(*(write(partition, count) for partition in range(partitions)))

        # Connections, producer id and code that is loaded when it is first needed.
        await write_all(1)
        before = ProcessorTime.of([("broker", pid) for pid in brokers])
        began_s = time.process_time()
        await write_all(records // partitions)
        took_s = time.process_time() - began_s
        after = ProcessorTime.of([("broker", pid) for pid in brokers])
        sys.stdout.write(f"{took_s} {after.since(before, 'spans')['spans_cpu_broker_s']}\n")


if __name__ == "__main__":
    asyncio.run(
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), [*map(int, sys.argv[6:])])
    )
