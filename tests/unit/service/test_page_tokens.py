"""Where the next page of a long list begins."""

import base64

import pytest
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError
from regnum_service.page_tokens import TOKEN_LENGTH_MAX, page_size, page_token, place_of


@pytest.mark.parametrize("place", [("orders", 0), ("a/b", 2**31 - 1), ("x" * 249, 7), ("", -1), ("ü\x00\ud7ff", 3)])
def test_a_token_says_where_the_next_page_begins(place: tuple[str, int]) -> None:
    token = page_token(place)
    assert place_of(token, str, int) == place
    assert token.isascii()
    assert not set(token) & set("+/=")


def test_without_a_token_it_is_the_first_page() -> None:
    assert place_of("", str, int) is None


@pytest.mark.parametrize(
    "token",
    [
        "orders/5",
        "!",
        "a",
        "x" * (TOKEN_LENGTH_MAX + 1),
        page_token(("orders",)),
        page_token((5, "orders")),
        page_token(("orders", 5, 6)),
        base64.urlsafe_b64encode(b'{"orders":5}').rstrip(b"=").decode(),
        base64.urlsafe_b64encode(b'["orders",true]').rstrip(b"=").decode(),
        base64.urlsafe_b64encode(b"[" * 1_000).rstrip(b"=").decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").rstrip(b"=").decode(),
    ],
)
def test_what_no_answer_gave_is_refused(token: str) -> None:
    with pytest.raises(RegnumError) as refused:
        place_of(token, str, int)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


def test_sizes_of_pages() -> None:
    assert [page_size(asked, default=100, maximum=1_000) for asked in (0, 1, 999, 5_000)] == [100, 1, 999, 1_000]
    with pytest.raises(RegnumError):
        page_size(-1, default=100, maximum=1_000)
