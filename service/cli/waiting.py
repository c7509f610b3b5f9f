"""Following a record of a service to its end."""

import threading
from collections.abc import Callable
from typing import TypeVar

import click

from service.cli import client

T = TypeVar("T")
PAUSE_S = 3
_MOST_FAILURES = 10


def follow(
    record: T,
    *,
    ask: Callable[[], T],
    is_ended: Callable[[T], bool],
    describe: Callable[[T], str],
    pause_s: float = 0.0,
) -> T:
    """Return the record once it has ended; every new state is a line on standard error.

    `ask` fetches it anew, after a pause where the service itself does not wait. What runs does not
    depend on the caller: a service that restarts meanwhile is asked again.

    Raises:
        Unreachable: The service stays away.
    """
    said, failures = "", 0
    while not is_ended(record):
        now = describe(record)
        if now != said:
            click.echo(now, err=True)
            said = now
        threading.Event().wait(pause_s)
        try:
            record, failures = ask(), 0
        except client.Unreachable:
            failures += 1
            if failures > _MOST_FAILURES:
                raise
            threading.Event().wait(PAUSE_S)
    return record
