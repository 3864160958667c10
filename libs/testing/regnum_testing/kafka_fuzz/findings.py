"""What an attack on the codec, or on a listener, has shown, and what of it is too much."""

import gc
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from regnum_kafka_wire.apis import APIS
from regnum_kafka_wire.frames import Head, read_request
from regnum_kafka_wire.primitives import MalformedError, TooManyItemsError

from regnum_testing.kafka_fuzz.mutations import mutated


@dataclass(slots=True)
class Findings:
    """Of one run."""

    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """How often a request was read, refused, or answered."""
    longest_s: float = 0.0
    """Of the thread's time, for one of them."""
    longest: str = ""
    """Which."""

    def took(self, seconds: float, what: str) -> None:
        """One input took so long."""
        if seconds > self.longest_s:
            self.longest_s, self.longest = seconds, what


def read_frame(frame: bytes) -> str:
    """Read a request as a listener does, and say what it was. Any other error than these two is a fault of ours."""
    view = memoryview(frame)
    try:
        head = Head.read(view)
        api = APIS.get(head.key)
        if api is None or head.version not in api.readers:
            return "not offered"
        read_request(api, head, view)
    except MalformedError:
        return "malformed"
    except TooManyItemsError:
        return "too many items"
    return "read"


def fuzz_codec(frames: Sequence[bytes], inputs: int, seed: int) -> Findings:
    """Read that many requests, each near a recorded one."""
    found, chance = Findings(), random.Random(seed)
    gc.collect()
    for _ in range(inputs):
        frame = mutated(frames, chance)
        since_s = time.thread_time()
        outcome = read_frame(frame)
        found.took(time.thread_time() - since_s, frame[:200].hex())
        found.inputs += 1
        found.outcomes[outcome] += 1
    return found
