"""All routes."""

from litestar import Router

from service.api import (
    engine_versions,
    estimates,
    gpus,
    index,
    models,
    presets,
    recommendations,
    rules,
    system,
)

_HANDLERS = (
    estimates.create_estimate,
    models.list_models,
    models.get_model,
    models.register_model,
    gpus.list_gpus,
    gpus.get_gpu,
    presets.list_presets,
    engine_versions.list_engine_versions,
    engine_versions.get_engine_version,
    engine_versions.list_engine_settings,
    rules.list_rules,
    rules.get_rule,
    index.get_index,
    recommendations.create_recommendation,
    recommendations.list_recommendations,
    recommendations.get_recommendation,
    recommendations.delete_recommendation,
    recommendations.get_recommendation_file,
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
    return Router("/", route_handlers=_HANDLERS)
