"""What real clients have sent, bent in every way, and requests as dear as they may be, cost little."""

from collections import Counter

from regnum_testing.kafka_fuzz.dear import dear_requests
from regnum_testing.kafka_fuzz.findings import fuzz_codec, read_frame
from regnum_testing.kafka_fuzz.sessions import recorded_sessions

SESSIONS = recorded_sessions()
FRAMES = [frame for session in SESSIONS.values() for frame in session]


def test_mutants_of_what_clients_sent_are_read_or_refused_and_cost_little() -> None:
    found = fuzz_codec(FRAMES, 3_000, seed=35)
    assert found.inputs == 3_000
    assert set(found.outcomes) <= {"read", "malformed", "too many items", "not offered"}
    assert min(found.outcomes["read"], found.outcomes["malformed"]) > 200, "bent at places that matter and at others"
    assert found.longest_s < 0.05, found.longest


def test_every_array_of_every_call_is_made_as_long_as_it_may_be() -> None:
    names = [name for name, _ in dear_requests(items=120)]
    assert len({name.split()[0] for name in names}) > 30
    assert Counter(read_frame(frame) for _, frame in dear_requests(items=120)) == {"read": len(names)}
