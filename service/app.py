"""The composition root: wires settings, store and routes."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import redis
from litestar import Litestar, Request
from litestar.di import Provide
from litestar.plugins import InitPlugin
from litestar.types import Guard

from service.access import ANONYMOUS
from service.api.access import Authenticator, caller_in
from service.api.application import Application
from service.api.audit import record_request
from service.api.context import Context, utc_now
from service.api.cors import origins_of
from service.api.edge import Edge
from service.api.guards import GUARDS
from service.api.mcp import PATH, make_plugin
from service.api.mcp_older import OlderRevisions
from service.api.metrics import Metrics
from service.api.problems import problem_response
from service.api.routes import make_router
from service.api.store_metrics import StoreMetrics
from service.embedded import EmbeddedStore, store_url
from service.hub import make_hub_resolver
from service.log import get_logger
from service.model_lookup import make_resolver
from service.oidc import TokenVerifier, read_trust
from service.settings import Settings
from service.store.api_keys import ApiKeyStore
from service.store.audit import AuditTrail
from service.store.budgets import Budgets
from service.store.client import connect, ping, store_time
from service.store.measurements import MeasurementStore
from service.store.models import ModelStore
from service.store.recommendations import RecommendationStore
from service.store.studies import StudyStore
from service.store.validations import ValidationStore
from service.store.webhooks import WebhookStore
from service.sweep import Sweeper
from service.telemetry import start_telemetry
from service.webhooks.dispatcher import Dispatcher
from service.webhooks.sending import reach_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_log = get_logger(__name__)
_YOUNG_OBJECTS = 20_000
"""That were made and not let go since the last collection, before the next one."""

_Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]


def create_app(
    settings: Settings, client: redis.Redis | None = None, *, now: Callable[[], datetime] = utc_now
) -> Litestar:
    """Return the application.

    Args:
        settings: What can be set.
        client: A store to use as it is; without one, `settings.redis_url` is used, and without
            that an embedded store that lives as long as the application.
        now: The clock.
    """
    lifespan: list[_Lifespan] = [_computing_threads(settings)]
    if client is None:
        client = connect(
            settings.redis_url or store_url(settings.data_dir), timeout_s=settings.store_timeout_s
        )
        if settings.redis_url is None:
            lifespan.append(_embedded_store(settings))
    if settings.warm_up:
        lifespan.append(_warming_up)
    lifespan += [_delivering(settings, client), _sweeping(settings, client, now=now)]
    context = make_context(settings, client, now=now)
    tracing, guards = _tracing(settings, lifespan)

    def context_of(request: Request[Any, Any, Any]) -> Context:
        return _context_of(context, request)

    app = Application(
        [make_router()],
        dependencies={"context": Provide(context_of, sync_to_thread=False)},
        exception_handlers={Exception: problem_response},
        guards=[*guards, *GUARDS],
        lifespan=lifespan,
        logging_config=None,
        plugins=[make_plugin(settings), *tracing],
        request_max_body_size=settings.max_body_bytes,
    )
    app.state.context = context
    app.asgi_handler = Edge(
        OlderRevisions(app.asgi_handler, path=PATH, max_body_bytes=settings.max_body_bytes),
        metrics=context.metrics,
        record=partial(record_request, context),
        max_concurrent_requests=settings.max_concurrent_requests,
        cors_origins=origins_of(settings.cors_origins),
    )
    return app


def make_context(
    settings: Settings, client: redis.Redis, *, now: Callable[[], datetime]
) -> Context:
    """Return what the routes work with, for callers without a key."""
    api_keys = ApiKeyStore(client)
    tokens = TokenVerifier(read_trust(settings.oidc_file), now=now) if settings.oidc_file else None
    return Context(
        settings=settings,
        caller=ANONYMOUS,
        authenticator=Authenticator(api_keys, settings=settings, now=now, tokens=tokens),
        api_keys=api_keys,
        audit=AuditTrail(client),
        budgets=Budgets(client),
        store=client,
        check_store=partial(ping, client),
        metrics=Metrics(StoreMetrics(client, now=now)),
        now=now,
        **_tenant_stores(settings, client, tenant=ANONYMOUS.tenant),
    )


def _tenant_stores(settings: Settings, client: redis.Redis, *, tenant: str) -> dict[str, Any]:
    """Return the fields of a context that differ between tenants."""
    retention = _retention(settings)
    models = ModelStore(client, tenant=tenant)
    resolve_model = make_resolver(models)
    if settings.hub_lookup:
        resolve_model = make_hub_resolver(resolve_model, cache=models)
    return {
        "recommendations": RecommendationStore(client, retention=retention, tenant=tenant),
        "validations": ValidationStore(client, retention=retention, tenant=tenant),
        "measurements": MeasurementStore(client, tenant=tenant),
        "studies": StudyStore(client, tenant=tenant),
        "webhooks": WebhookStore(client, retention=retention, tenant=tenant),
        "models": models,
        "resolve_model": resolve_model,
    }


def _context_of(context: Context, request: Request[Any, Any, Any]) -> Context:
    """Return the context of one request: every store in it shows the caller's tenant only."""
    caller = caller_in(request.scope["state"])
    if caller.tenant == context.caller.tenant:
        return replace(context, caller=caller)
    stores = _tenant_stores(context.settings, context.store, tenant=caller.tenant)
    return replace(context, caller=caller, **stores)


def _retention(settings: Settings) -> timedelta | None:
    return timedelta(days=settings.retention_days) if settings.retention_days else None


def _computing_threads(settings: Settings) -> _Lifespan:
    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        with ThreadPoolExecutor(settings.compute_threads, thread_name_prefix="compute") as pool:
            asyncio.get_running_loop().set_default_executor(pool)
            yield

    return lifespan


def _embedded_store(settings: Settings) -> _Lifespan:
    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        # Started in this very thread: the store ends when the thread that made it does.
        with EmbeddedStore(settings.data_dir) as store:
            _log.info("store_started", pid=store.pid)
            yield

    return lifespan


def _delivering(settings: Settings, client: redis.Redis) -> _Lifespan:
    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        store = WebhookStore(client, retention=_retention(settings))
        folder = settings.webhook_secrets_dir
        reach = reach_of(networks=settings.webhook_networks, redirects=settings.webhook_redirects)
        # Processes agree on what is due by the store's clock: theirs may differ.
        now = partial(store_time, client)
        with Dispatcher(store, secrets_dir=folder, reach=reach, now=now):
            yield

    return lifespan


def _sweeping(settings: Settings, client: redis.Redis, *, now: Callable[[], datetime]) -> _Lifespan:
    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        with Sweeper(client, retention=_retention(settings), now=now):
            yield

    return lifespan


def _tracing(settings: Settings, lifespan: list[_Lifespan]) -> tuple[list[InitPlugin], list[Guard]]:
    """Return the plugin that makes spans and the guard that names them, where they are on."""
    provider = start_telemetry(endpoint=settings.otlp_endpoint, service="setpoint")
    if provider is None:
        return [], []
    from service.api.tracing import name_span, tracing_plugin  # noqa: PLC0415  # needs the extra

    lifespan.append(_sending_spans(provider))
    return [tracing_plugin(provider)], [name_span]


def _sending_spans(provider: "TracerProvider") -> _Lifespan:
    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(provider.shutdown)

    return lifespan


@asynccontextmanager
async def _warming_up(_: Litestar) -> AsyncIterator[None]:
    threading.Thread(target=_warm_up, name="warm-up", daemon=True).start()
    yield


def _warm_up() -> None:
    """Load what the first request would wait for."""
    from service.api.examples import estimate_answer  # noqa: PLC0415  # slow, so in its own thread

    try:
        estimate_answer()
    except Exception:  # noqa: BLE001  # the first request will tell the caller
        _log.exception("warm_up_failed")
    else:
        # What is loaded stays: without looking through it, collecting takes a tenth of the time.
        # An answer makes thousands of objects and hardly a cycle: collecting ten times in each
        # is in vain.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS)
        _log.info("warm")
