"""Servers as URLs name them: ``host``, ``host:port``, ``[address]``, ``[address]:port``. Pure."""

import ipaddress


def parse_endpoint(text: str, *, default_port: int, url: str, form: str) -> tuple[str, int]:
    """Host and port of one server.

    Args:
        text: what the URL says.
        default_port: where it says none.
        url: the URL as messages may show it.
        form: how such URLs are written, for messages.

    Raises ValueError.
    """
    host, port = text, str(default_port)
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ValueError(f"{url!r}: {text!r} is not [address]:port; {form}")
        port = rest[1:] or port
    elif ":" in text:
        host, _, port = text.rpartition(":")
    if not host or (":" in host and not is_address(host)) or not port.isascii() or not port.isdigit():
        raise ValueError(f"{url!r}: {text!r} is not host:port; {form}")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"{url!r}: port {port} is not between 1 and 65535")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError(f"{url!r}: {host!r} cannot be the name of a host; {form}") from None
    return host, int(port)


def is_address(host: str) -> bool:
    """Whether a host is given by its address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
