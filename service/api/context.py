"""What the routes work with, wired once by the composition root."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import redis
from litestar.di import NamedDependency

from api_schemas.model import ModelRef
from service.access import Caller
from service.api.access import Authenticator
from service.api.metrics import Metrics
from service.settings import Settings
from service.store.api_keys import ApiKeyStore
from service.store.audit import AuditTrail
from service.store.budgets import Budgets
from service.store.measurements import MeasurementStore
from service.store.models import ModelStore
from service.store.recommendations import RecommendationStore
from service.store.studies import StudyStore
from service.store.validations import ValidationStore
from service.store.webhooks import WebhookStore
from service.tuning.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Context:
    """Settings, stores and clock of one application, for one caller: its tenant's records."""

    settings: Settings
    caller: Caller
    authenticator: Authenticator
    api_keys: ApiKeyStore
    audit: AuditTrail
    budgets: Budgets
    store: redis.Redis
    recommendations: RecommendationStore
    validations: ValidationStore
    measurements: MeasurementStore
    studies: StudyStore
    webhooks: WebhookStore
    models: ModelStore
    resolve_model: Callable[[ModelRef], ModelSpec]
    check_store: Callable[[], None]
    metrics: Metrics
    now: Callable[[], datetime]


def utc_now() -> datetime:
    """Return the present time; routes take it as an argument."""
    return datetime.now(UTC)


InjectedContext: TypeAlias = NamedDependency[Context]
"""How a route asks for the context: a parameter named `context`."""
