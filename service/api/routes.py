"""All routes."""

from litestar import HttpMethod, Response, Router, route
from litestar.handlers import HTTPRouteHandler

from service.api import (
    accuracy,
    api_keys,
    calibrations,
    checks,
    engine_versions,
    estimates,
    gpus,
    measurements,
    models,
    portal,
    presets,
    recommendations,
    rules,
    studies,
    system,
    validations,
    webhooks,
)
from service.api.problems import with_implied_methods

_HANDLERS = (
    estimates.create_estimate,
    checks.create_check,
    models.list_models,
    models.get_model,
    models.register_model,
    models.delete_model,
    gpus.list_gpus,
    gpus.get_gpu,
    presets.list_presets,
    accuracy.get_accuracy,
    engine_versions.list_engine_versions,
    engine_versions.get_engine_version,
    engine_versions.list_engine_settings,
    rules.list_rules,
    rules.get_rule,
    portal.get_index,
    portal.get_portal_file,
    recommendations.create_recommendation,
    recommendations.list_recommendations,
    recommendations.get_recommendation,
    recommendations.delete_recommendation,
    recommendations.get_recommendation_file,
    validations.create_validation,
    validations.get_validation,
    validations.follow_validation,
    validations.cancel_validation,
    validations.list_workers,
    webhooks.list_webhook_deliveries,
    webhooks.replay_webhook_delivery,
    measurements.create_measurement,
    measurements.list_measurements,
    measurements.get_measurement,
    measurements.delete_measurement,
    calibrations.list_calibrations,
    studies.create_study,
    studies.list_studies,
    studies.get_study,
    studies.follow_study,
    studies.cancel_study,
    api_keys.create_api_key,
    api_keys.list_api_keys,
    api_keys.get_api_key,
    api_keys.revoke_api_key,
    api_keys.rotate_api_key,
    api_keys.list_audit_events,
    system.get_liveness,
    system.get_readiness,
    system.get_metrics,
    system.get_openapi,
    system.get_problem_type,
)


def make_router() -> Router:
    """Return a router with all routes.

    Through a router each handler is registered once; registered one by one, the framework would
    wrap a threaded handler again for every further method of its path.
    """
    return Router("/", route_handlers=[*_options_handlers(), *_HANDLERS])


def _options_handlers() -> list[HTTPRouteHandler]:
    """Return a handler for OPTIONS on every path.

    The framework's own is made when the first method of a path is registered, and misses the rest.
    """
    methods: dict[str, set[str]] = {}
    for handler in _HANDLERS:
        for path in handler.paths:
            methods.setdefault(path, set()).update(handler.http_methods)
    return [
        _options_handler(path, allow=with_implied_methods(",".join(found)))
        for path, found in methods.items()
    ]


def _options_handler(path: str, *, allow: str) -> HTTPRouteHandler:
    @route(path, http_method=[HttpMethod.OPTIONS], status_code=204, sync_to_thread=False)
    def answer_options() -> Response[None]:
        return Response(None, status_code=204, headers={"Allow": allow})

    return answer_options
