"""Where a webhook may go."""

import asyncio
import ipaddress
from collections.abc import Sequence

import pytest

from service.webhooks.addresses import (
    AddressRefused,
    Resolve,
    addresses_of,
    may_reach,
    networks_of,
    refuse_literal,
)

_INNER = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.168.1.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fc00::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2001:0:0:0:0:0:80ff:fffe",
]


def names(*addresses: str) -> Resolve:
    """Return a resolver that knows every name by these addresses."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


@pytest.mark.parametrize("address", _INNER)
def test_nothing_inside_is_reached(address: str) -> None:
    """Private, local, reserved and group addresses are refused, also inside another address."""
    assert not may_reach(ipaddress.ip_address(address), ())


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_the_public_internet_is_reached(address: str) -> None:
    """Global addresses need no permission."""
    assert may_reach(ipaddress.ip_address(address), ())


def test_an_allowed_network_is_reached_and_its_neighbour_is_not() -> None:
    """The operator opens networks one by one."""
    allowed = networks_of("10.1.0.0/16, fd00::/8")

    assert may_reach(ipaddress.ip_address("10.1.2.3"), allowed)
    assert may_reach(ipaddress.ip_address("::ffff:10.1.2.3"), allowed)
    assert may_reach(ipaddress.ip_address("fd12::1"), allowed)
    assert not may_reach(ipaddress.ip_address("10.2.0.1"), allowed)


def test_a_name_with_both_kinds_of_addresses_leads_outside_only() -> None:
    """What may not be reached is left out, in whatever order the answer came."""
    found = asyncio.run(
        addresses_of("h", 443, allowed=(), resolve=names("10.0.0.1", "1.1.1.1", "::1"))
    )

    assert [str(address) for address in found] == ["1.1.1.1"]


def test_a_name_that_leads_inside_is_refused() -> None:
    """A public name with private addresses is as private as they are."""
    with pytest.raises(AddressRefused):
        asyncio.run(addresses_of("h", 443, allowed=(), resolve=names("127.0.0.1", "fe80::1%eth0")))


@pytest.mark.parametrize("text", ["10.0.0/8", "everywhere", "10.0.0.1/8"])
def test_a_network_is_written_exactly(text: str) -> None:
    """What could mean something else is refused."""
    with pytest.raises(ValueError, match=r"does not appear|host bits"):
        networks_of(text)


@pytest.mark.parametrize(
    "host",
    [
        *_INNER,
        *("[::1]", "fe80::1%eth0"),
        *("localhost", "LOCALHOST.", "a.localhost", "ip6-localhost"),
        *("127.1", "0x7f.1", "2130706433", "017700000001", "10.1"),
    ],
)
def test_what_a_url_says_plainly_is_refused_before_it_is_looked_up(host: str) -> None:
    """Literals inside, in every form that resolvers take, and this machine's own names."""
    with pytest.raises(AddressRefused):
        refuse_literal(host, allowed=())


@pytest.mark.parametrize(
    "host",
    [
        "hooks.example.org",
        "1.1.1.1",
        "[2606:4700::1111]",
        "16843009",
        "localhost.example.org",
        "fed",
    ],
)
def test_names_and_public_literals_are_left_to_the_delivery(host: str) -> None:
    """What a name stands for is judged when it is looked up, every time."""
    refuse_literal(host, allowed=())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]"])
def test_an_allowed_network_is_allowed_in_every_form(host: str) -> None:
    """The operator's networks count for literals as they do for names."""
    refuse_literal(host, allowed=networks_of("127.0.0.0/8"))
