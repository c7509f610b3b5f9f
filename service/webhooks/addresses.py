"""Where a webhook may go: the public internet, and networks that the operator allowed.

A name is looked up once and the connection made to the very address that was judged, so that a name
that changes its answer in between (DNS rebinding) leads nowhere else.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses that stand for an IPv4 address (RFC 6052)."""


_LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})
_NUMERIC = frozenset("0123456789abcdefx.")


class AddressRefused(Exception):
    """A host that has no address to which a webhook may go."""


def networks_of(text: str) -> tuple[Network, ...]:
    """Return the networks in a list that is separated by commas.

    Raises:
        ValueError: One of them is no network.
    """
    return tuple(ipaddress.ip_network(item.strip()) for item in text.split(",") if item.strip())


def may_reach(address: Address, allowed: Sequence[Network]) -> bool:
    """Tell whether a webhook may go to an address; one inside another counts as the inner one."""
    inner = _inner(address)
    if any(inner in network for network in allowed):
        return True
    return inner.is_global and not inner.is_multicast


def refuse_literal(host: str, *, allowed: Sequence[Network]) -> None:
    """Return when a host is a name to be looked up later, or a literal that may be reached.

    Short and numeric forms of IPv4, which resolvers take too, are literals; so are the names that
    every machine has for itself.

    Raises:
        AddressRefused: No webhook may go there.
    """
    literals = _literals(host)
    if literals and not any(may_reach(address, allowed) for address in literals):
        raise AddressRefused(host)


def _literals(host: str) -> list[Address]:
    name = host.rstrip(".").lower()
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        return [ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1")]
    with contextlib.suppress(ValueError):
        return [ipaddress.ip_address(name.strip("[]").partition("%")[0])]
    if not name.isascii() or set(name) - _NUMERIC:
        return []
    with contextlib.suppress(OSError):
        return [ipaddress.IPv4Address(socket.inet_aton(name))]
    return []


async def addresses_of(
    host: str, port: int, *, allowed: Sequence[Network], resolve: Resolve
) -> list[Address]:
    """Return the addresses of a host to which a webhook may go, in the resolver's order.

    Raises:
        AddressRefused: It has addresses, and none is allowed.
        OSError: It has none.
    """
    found = [ipaddress.ip_address(item.partition("%")[0]) for item in await resolve(host, port)]
    usable = [address for address in found if may_reach(address, allowed)]
    if not usable:
        raise AddressRefused(host)
    return usable


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host as this machine resolves it.

    Raises:
        OSError: It has none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def _inner(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else address)
