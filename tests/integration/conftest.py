"""The application in this process, on a real store of its own."""

from collections.abc import Iterator

import pytest
import redis
from litestar import Litestar
from litestar.testing import TestClient

from service.app import create_app
from service.embedded import EmbeddedStore
from service.settings import Settings
from service.store.client import connect

Client = TestClient[Litestar]


@pytest.fixture(scope="session")
def embedded_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    with EmbeddedStore(str(tmp_path_factory.mktemp("store"))) as store:
        yield store


@pytest.fixture
def store_client(embedded_store: EmbeddedStore) -> Iterator[redis.Redis]:
    """Return a client of an empty store."""
    with connect(embedded_store.url, timeout_s=5.0) as client:
        client.flushdb()
        yield client


@pytest.fixture
def api(store_client: redis.Redis) -> Iterator[Client]:
    """Return a client of the API on an empty store."""
    settings = Settings(warm_up=False, max_body_bytes=200_000, webhook_networks="127.0.0.0/8")
    app = create_app(settings, store_client)
    with TestClient(app) as client:
        yield client
