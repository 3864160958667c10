"""What is masked reaches no page, stream or search of the console, in no form that records are shown in."""

import json

import pytest
from regnum_client.records import ConsumedRecord
from regnum_console.records.masking import Mask, TopicMasks, mask_of
from regnum_testing.asgi import EventStream, ask
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_console import FakeConsole
from regnum_testing.waiting import until

SECRET = "4111-1111"  # noqa: S105 - what is to be masked
HEADERS = (("Authorization", SECRET.encode()), ("by", b"import"), ("none", None))


def masked(record: ConsumedRecord, *masks: str) -> ConsumedRecord:
    return TopicMasks(map(mask_of, masks)).masked(record)


def record_of(value: bytes | None, key: bytes | None = b"k") -> ConsumedRecord:
    return ConsumedRecord("orders", 0, 0, 0, key, value, HEADERS)


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("orders=value", Mask(topics="orders", part="value")),
        ("*=headers", Mask(topics="*", part="headers")),
        ("pay-?=field:card.no,1=2", Mask(topics="pay-?", part="field", name="card.no,1=2")),
        ("a=header:x:y", Mask(topics="a", part="header", name="x:y")),
    ],
)
def test_masks_are_read_as_people_write_them(text: str, mask: Mask) -> None:
    assert mask_of(text) == mask


@pytest.mark.parametrize(
    "text", ["", "orders", "=value", "orders=", "orders=field", "orders=field:", "o=value:x", "o=x"]
)
def test_what_is_no_mask_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no mask: give TOPIC=value"):
        mask_of(text)


def test_whole_parts_are_masked_and_what_is_not_there_stays_so() -> None:
    of = masked(record_of(SECRET.encode()), "orders=value", "orders=key", "orders=headers")
    assert SECRET.encode() not in repr(of).encode()
    assert (of.key, of.value) == (b"(masked)", b"(masked)")
    assert dict(of.headers) == {"Authorization": b"(masked)", "by": b"(masked)", "none": None}
    assert masked(record_of(None, None), "orders=value", "orders=key").value is None
    assert dict(masked(record_of(b""), "orders=header:AUTHORIZATION").headers)["by"] == b"import"


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ({"card": SECRET, "n": 1}, {"card": "(masked)", "n": 1}),
        ({"a": [{"Card": {"no": SECRET}}, 2]}, {"a": [{"Card": "(masked)"}, 2]}),
        ([{"card": None}, "x"], [{"card": "(masked)"}, "x"]),
        ({"n": 12345678901234567890123, "e": "é"}, {"n": 12345678901234567890123, "e": "é"}),
    ],
)
def test_members_are_masked_at_any_depth(value: object, left: object) -> None:
    assert json.loads(masked(record_of(json.dumps(value).encode()), "orders=field:card").value) == left


@pytest.mark.parametrize(
    "value",
    [
        SECRET.encode(),
        b'"%s"' % SECRET.encode(),
        b'{"card": "%s"' % SECRET.encode(),
        b'\x00\x01{"card": "%s"}' % SECRET.encode(),
        b'{"x":' * 5_000 + b'"%s"' % SECRET.encode() + b"}" * 5_000,
        b'{"n": "\\ud800", "card": "%s"}' % SECRET.encode(),
        b'{"n": %s, "card": "%s"}' % (b"1" * 5_000, SECRET.encode()),
    ],
)
def test_what_cannot_be_masked_in_part_is_masked_whole(value: bytes) -> None:
    assert masked(record_of(value), "orders=field:card").value == b"(masked)"


def test_a_member_that_is_named_twice_is_gone_twice() -> None:
    of = masked(record_of(b'{"card": "%s", "card": 1, "\\u0063ard": 2}' % SECRET.encode()), "orders=field:card")
    assert of.value == b'{"card": "(masked)"}'


@pytest.mark.parametrize("text", ['{"status":"failed","card":"%s"}', '{"status": "failed", "card": "%s"}'])
def test_what_is_not_masked_reads_as_it_was_written(text: str) -> None:
    """So that a search that found it before the mask finds it still."""
    of = masked(record_of((text % SECRET).encode()), "orders=field:card")
    assert of.value == (text % "(masked)").encode()


@pytest.mark.parametrize("form", ["auto", "text", "json", "bytes"])
async def test_no_page_has_what_is_masked(form: str) -> None:
    console = FakeConsole(masks=["ord*=field:card", "orders=header:authorization", "other=key"])
    value = json.dumps({"card": SECRET, "who": "Anna"}).encode()
    console.log.add(value, key=b"customer-7", headers=HEADERS)
    page = (await ask(console.app, f"/records/orders?from=begin&as={form}")).text
    assert "Masked by this console: field:card, header:authorization." in page
    assert SECRET not in page
    assert SECRET.encode().hex(" ")[:20] not in page
    assert "import" in page
    assert "customer-7" in page
    plain = FakeConsole()
    plain.log.add(value)
    assert "Masked" not in (page := (await ask(plain.app, "/records/orders?from=begin")).text)
    assert SECRET in page


async def test_no_search_finds_what_is_masked() -> None:
    console = FakeConsole(masks=["orders=field:card", "orders=headers"])
    console.log.add(json.dumps({"card": SECRET, "who": "Anna"}).encode(), headers=HEADERS)
    for wanted, found in (("4111", 0), ("import", 0), ("Anna", 1)):
        async with EventStream(console.app, f"/live/search/orders?search={wanted}") as stream:
            part = await stream.next("part") if found else None
            done = await stream.next("done")
        assert f"{found} found in 1 records" in done["html"]
        assert part is None or SECRET not in part["html"]


async def test_what_comes_is_masked_as_well() -> None:
    console = FakeConsole(masks=["orders=value"])
    async with EventStream(console.app, "/live/tail/orders") as stream:
        await stream.next("open")
        await until(lambda: console.log.open_readers == 1)
        console.log.add(SECRET.encode())
        part = await stream.next("part")
    assert "(masked)" in part["html"]
    assert SECRET not in part["html"]


async def test_a_console_does_not_start_with_a_mask_that_is_none() -> None:
    ran = await CommandHere("127.0.0.1:1")("console", "--mask", "orders=fields:card", "-o", "json")
    assert ran.status == 2
    assert "--mask 'orders=fields:card' is no mask" in ran.error["message"]
