"""All files of one recommendation."""

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

__all__ = ["Rendering", "decision_record", "render_all", "watch_list"]

_PLAIN = (serve_script, vllm_yaml, env_file)
_CONTAINERS = (compose, deployment, values, inference_service)
_LAST = (llm_script, alerts, decision_record)


def render_all(rendering: Rendering) -> list[RenderedFile]:
    """Return the files ready to commit, all from the same configuration.

    Container files are left out, with the reason in DECISION.md, where one server spans several
    nodes or no image is published.

    Raises:
        InvalidRequest: the release lacks a setting or cannot take a value.
    """
    in_containers = () if why_not_in_a_container(rendering) else _CONTAINERS
    return [render(rendering) for render in (*_PLAIN, *in_containers, *_LAST)]
