"""All files of one recommendation."""

from collections.abc import Callable

from msgspec.structs import replace

from api_schemas.estimate import Estimate
from api_schemas.recommendation import RenderedFile
from service.tuning.render.alerts import alerts
from service.tuning.render.compose import compose
from service.tuning.render.decision_record import decision_record
from service.tuning.render.image import why_not_in_a_container
from service.tuning.render.kserve import inference_service
from service.tuning.render.kubernetes import deployment
from service.tuning.render.offline import llm_script
from service.tuning.render.production_stack import values
from service.tuning.render.rendering import Rendering
from service.tuning.render.shell import env_file, serve_script
from service.tuning.render.signals import watch_list
from service.tuning.render.vllm_yaml import vllm_yaml
from service.tuning.search.memo import Memo, encoded

__all__ = ["Rendering", "decision_record", "render_all", "watch_list"]

_Render = Callable[[Rendering], RenderedFile]
_PLAIN: tuple[_Render, ...] = (serve_script, vllm_yaml, env_file)
_CONTAINERS: tuple[_Render, ...] = (compose, deployment, values, inference_service)
_LAST: tuple[_Render, ...] = (llm_script, alerts)
_FILES: Memo[tuple[RenderedFile, ...]] = Memo(most=256)
"""Of all requests: many loads end at the same configuration, whose files say nothing of the load.
About 20 KB each."""


def render_all(rendering: Rendering) -> list[RenderedFile]:
    """Return the files ready to commit, all from the same configuration.

    Container files are left out, with the reason in DECISION.md, where one server spans several
    nodes or no image is published.

    Raises:
        InvalidRequest: the release lacks a setting or cannot take a value.
    """
    in_containers = () if why_not_in_a_container(rendering) else _CONTAINERS
    bare = _configuration_alone(rendering)
    files = _FILES.once(
        encoded(bare),
        lambda: tuple(render(bare) for render in (*_PLAIN, *in_containers, *_LAST)),
    )
    return [*files, decision_record(rendering)]


def _configuration_alone(rendering: Rendering) -> Rendering:
    """Return the rendering without what only DECISION.md tells."""
    return replace(
        rendering,
        headline="",
        decisions=(),
        findings=(),
        assumptions=(),
        estimate=rendering.estimate and _memory_alone(rendering.estimate),
    )


def _memory_alone(estimate: Estimate) -> Estimate:
    return replace(estimate, performance=None, slo=[], findings=[])
