"""One try to deliver: a POST that goes only where it may, and takes no longer than it may."""

import asyncio
import ssl
import time
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus

import httpx
import msgspec

from api_schemas.webhook import DeliveryOutcome
from service.webhooks.addresses import (
    Address,
    AddressRefused,
    Network,
    Resolve,
    addresses_of,
    networks_of,
    resolve_host,
)

LIMIT_S = 15.0
"""Longest time for one try, whatever the receiver does."""
_CONNECT_LIMIT_S = 5.0
_MOST_REDIRECTS = 3
_KEEPING_THE_METHOD = frozenset({HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT})
_PORTS = {"http": 80, "https": 443}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one try."""

    outcome: DeliveryOutcome
    status_code: int | None = None
    retry_after_s: float = 0.0
    latency_ms: float = 0.0


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Where webhooks may go beyond the public internet."""

    networks: tuple[Network, ...] = ()
    redirects: bool = False
    """Whether a redirect that keeps the method is followed; each target is judged anew."""


def reach_of(*, networks: str, redirects: bool) -> Reach:
    """Return the reach that the settings of a process state."""
    return Reach(networks=networks_of(networks), redirects=redirects)


async def post(
    url: str,
    *,
    body: str,
    headers: Mapping[str, str],
    reach: Reach,
    resolve: Resolve = resolve_host,
    limit_s: float = LIMIT_S,
) -> Reply:
    """Send a message and return what came of it; no failure of the receiver is an exception."""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(limit_s):
            reply = await _follow(url, body, headers, reach=reach, resolve=resolve)
    except AddressRefused:
        reply = Reply(outcome="address_refused")
    except (TimeoutError, httpx.TimeoutException):
        reply = Reply(outcome="timed_out")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError, ValueError):
        reply = Reply(outcome="unreachable")
    elapsed_ms = (time.perf_counter() - started) * 1000
    return msgspec.structs.replace(reply, latency_ms=round(elapsed_ms, 1))


async def _follow(
    url: str, body: str, headers: Mapping[str, str], *, reach: Reach, resolve: Resolve
) -> Reply:
    target = httpx.URL(url)
    for _ in range(_MOST_REDIRECTS + 1):
        answer = await _send(target, body, headers, reach=reach, resolve=resolve)
        if not answer.has_redirect_location:
            return _reply(answer)
        if not reach.redirects or answer.status_code not in _KEEPING_THE_METHOD:
            break
        following = target.join(answer.headers["location"])
        if (target.scheme, following.scheme) == ("https", "http"):
            break
        target = following
    return Reply(outcome="redirect_refused", status_code=answer.status_code)


async def _send(
    url: httpx.URL, body: str, headers: Mapping[str, str], *, reach: Reach, resolve: Resolve
) -> httpx.Response:
    """Return the answer of the first address that takes the connection, without its body."""
    host = url.raw_host.decode("ascii")
    port = url.port or _PORTS.get(url.scheme, 0)
    usable = await addresses_of(host, port, allowed=reach.networks, resolve=resolve)
    failure: httpx.HTTPError = httpx.ConnectError(f"no address of {host} answers")
    for address in usable:
        try:
            return await _send_to(address, url, body, headers, host=host)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            failure = error
    raise failure


async def _send_to(
    address: Address, url: httpx.URL, body: str, headers: Mapping[str, str], *, host: str
) -> httpx.Response:
    """Return the status line and headers; the certificate must be the host's, not the address's.

    A client of its own for each try: connections are kept by address, and another host may have
    the same one. No proxy of the environment is asked: it would look the name up again.
    """
    timeout = httpx.Timeout(LIMIT_S, connect=_CONNECT_LIMIT_S)
    async with httpx.AsyncClient(verify=_tls(), trust_env=False, timeout=timeout) as client:
        request = client.build_request(
            "POST",
            url.copy_with(host=str(address)),
            content=body.encode(),
            headers={**headers, "host": url.netloc.decode("ascii"), "user-agent": "Setpoint"},
            extensions={"sni_hostname": host},
        )
        answer = await client.send(request, stream=True, follow_redirects=False)
        await answer.aclose()
        return answer


def _reply(answer: httpx.Response) -> Reply:
    outcome: DeliveryOutcome = "refused"
    if answer.is_success:
        outcome = "delivered"
    elif answer.status_code == HTTPStatus.GONE:
        outcome = "gone"
    elif answer.is_redirect:
        outcome = "redirect_refused"
    return Reply(
        outcome=outcome, status_code=answer.status_code, retry_after_s=_retry_after_s(answer)
    )


def _retry_after_s(answer: httpx.Response) -> float:
    """Return the seconds that the receiver asks to wait; a date is not read."""
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0


@cache
def _tls() -> ssl.SSLContext:
    """Return one context for all tries: it takes long to load the authorities."""
    return httpx.create_ssl_context()
