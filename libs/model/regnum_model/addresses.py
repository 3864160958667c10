"""Host and port in one text, and apart again (RFC 3986, section 3.2.2): IPv6 addresses stand in brackets. Pure."""

import ipaddress


def joined(host: str, port: int) -> str:
    """``host:port``, or ``[address]:port`` for an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Host, without brackets, and port. What releases before wrote is read, too: an IPv6 address without brackets.

    Args:
        text: it.
        default_port: where the text says none; None: it has to.

    Raises:
        ValueError: it is none; the message says so of the text.
    """
    port = ""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        well_formed = bool(closed) and is_ipv6(host) and (not rest or rest.startswith(":"))
        port = rest[1:]
    else:
        host, _, port = text.rpartition(":") if ":" in text else (text, "", "")
        well_formed = bool(host) and not set(host) & set("[]") and (":" not in host or is_ipv6(host))
    if not port and default_port is not None and not text.endswith(":"):
        port = str(default_port)
    if not well_formed or not port.isascii() or not port.isdigit():
        raise ValueError(f"{text!r} is not host:port, or [address]:port for an IPv6 address")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"{text!r} is not host:port: a port is between 1 and 65535")
    return host, int(port)


def is_address(host: str) -> bool:
    """Whether a host is given by its address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_ipv6(host: str) -> bool:
    """Whether a host is given by an IPv6 address."""
    return ":" in host and is_address(host)


def is_anywhere(host: str) -> bool:
    """Whether a listener there takes connections at all addresses, so that nobody can connect to just that."""
    return is_address(host) and ipaddress.ip_address(host).is_unspecified
