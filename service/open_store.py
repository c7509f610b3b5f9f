"""Reaching the store from outside the service: the one that runs, or one for a moment."""

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from service.embedded import EmbeddedStore, store_url
from service.settings import Settings
from service.store.client import StoreUnavailable, connect, ping


@contextmanager
def opened_store(settings: Settings) -> Iterator[redis.Redis]:
    """Yield a client of the store that these settings name.

    An embedded store that no service runs right now is started, and ended afterwards.

    Raises:
        StoreUnavailable: The store that is set does not answer.
        DataFolderInUse: A service holds the folder and its store does not answer.
        StoreNotStarted: The embedded store did not come up.
    """
    timeout_s = settings.store_timeout_s
    url = settings.redis_url or store_url(settings.data_dir)
    with connect(url, timeout_s=timeout_s) as client:
        try:
            ping(client)
        except StoreUnavailable:
            if settings.redis_url is not None:
                raise
        else:
            yield client
            return
    with (
        EmbeddedStore(settings.data_dir) as store,
        connect(store.url, timeout_s=timeout_s) as client,
    ):
        yield client
