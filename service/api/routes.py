"""All routes."""

from litestar.types import ControllerRouterHandler

from service.api import (
    engine_versions,
    estimates,
    gpus,
    index,
    presets,
    recommendations,
    rules,
    system,
)

ROUTES: list[ControllerRouterHandler] = [
    estimates.create_estimate,
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
]
