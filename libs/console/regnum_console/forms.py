"""What a form sends."""

from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request


async def posted(request: Request, *, bytes_max: int) -> Mapping[str, str]:
    """Its fields. Raises HTTPException 413 and 415; 400 for a browser that hung up."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(415, "a form is sent as application/x-www-form-urlencoded")
    body = bytearray()
    try:
        async for some in request.stream():
            body += some
            if len(body) > bytes_max:
                raise HTTPException(413, f"a form has at most {bytes_max:,} bytes")
    except ClientDisconnect:
        raise HTTPException(400, "the form did not come to its end") from None
    try:
        fields = parse_qs(body.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise HTTPException(400, "no form of this console has so many fields") from None
    return {name: values[-1] for name, values in fields.items()}
