"""Budgets per key: requests a minute, and GPU minutes a day for validations."""

import asyncio
import math
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from api_schemas.validation import ValidationPlan
from service.access import Caller
from service.api.problems import Refusal, refuse_field
from service.queue import device_count
from service.store.budgets import Budget, Take
from service.store.client import StoreUnavailable

if TYPE_CHECKING:
    import msgspec

    from api_schemas.engine import EngineConfig
    from service.api.context import Context

HEADERS = "headers"
"""Where the state of a request keeps headers that its answer gets, whatever it will be."""
_MINUTE_S = 60.0
_DAY_S = 86_400.0


async def meter_request(
    context: "Context", caller: Caller, state: MutableMapping[str, Any]
) -> None:
    """Take one request from the key's budget; without the store everybody is let through.

    Raises:
        Refusal: The budget is used up for now.
    """
    per_minute = context.settings.requests_per_minute
    if caller.key_id is None or not per_minute:
        return
    budget = Budget(name="requests", capacity=per_minute, window_s=_MINUTE_S)
    try:
        take = await asyncio.to_thread(context.budgets.take, budget, holder=caller.key_id)
    except StoreUnavailable:
        context.metrics.count_unmetered(budget.name)
        return
    state.setdefault(HEADERS, []).extend(fields_of(budget, take))
    if not take.granted:
        context.metrics.count_limited(budget.name)
        raise _used_up(budget, take)


def reserve_gpu_minutes(
    context: "Context", plan: ValidationPlan, *, config: "EngineConfig | msgspec.Raw"
) -> None:
    """Take a plan's minutes on all its devices from the key's budget.

    Raises:
        Refusal: The budget is used up, or could never hold the plan.
        StoreUnavailable: It is not known; nothing is started unmetered.
    """
    per_day = context.settings.gpu_minutes_per_day
    if context.caller.key_id is None or not per_day:
        return
    amount = plan.max_minutes * device_count(config)
    if amount > per_day:
        raise refuse_field(
            "max_minutes", f"the plan takes {amount:g} GPU minutes; a day has {per_day}"
        )
    budget = Budget(name="gpu-minutes", capacity=per_day, window_s=_DAY_S)
    take = context.budgets.take(budget, holder=context.caller.key_id, amount=amount)
    if not take.granted:
        context.metrics.count_limited(budget.name)
        raise _used_up(budget, take)


def fields_of(budget: Budget, take: Take) -> list[tuple[bytes, bytes]]:
    """Return the RateLimit fields of the IETF draft, and the older ones that clients know."""
    left, wait_s = math.floor(take.left), math.ceil(take.wait_s)
    full_s = math.ceil((budget.capacity - take.left) / budget.capacity * budget.window_s)
    values = {
        "ratelimit-policy": f'"{budget.name}";q={budget.capacity:g};w={budget.window_s:g}',
        "ratelimit": f'"{budget.name}";r={left};t={wait_s or full_s}',
        "x-ratelimit-limit": f"{budget.capacity:g}",
        "x-ratelimit-remaining": str(left),
        "x-ratelimit-reset": str(wait_s or full_s),
    }
    return [(name.encode(), value.encode()) for name, value in values.items()]


def _used_up(budget: Budget, take: Take) -> Refusal:
    wait_s = max(1, math.ceil(take.wait_s))
    return Refusal(
        "rate-limited",
        f"The key's budget of {budget.capacity:g} {budget.name} in {budget.window_s:g} s is used "
        f"up; retry in {wait_s} s.",
        Retry_After=str(wait_s),
    )
