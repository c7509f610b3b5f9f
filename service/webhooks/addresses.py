"""Where a webhook may go: the public internet, and networks that the operator allowed.

A name is looked up once and the connection made to the very address that was judged, so that a name
that changes its answer in between (DNS rebinding) leads nowhere else.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses that stand for an IPv4 address (RFC 6052)."""


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
