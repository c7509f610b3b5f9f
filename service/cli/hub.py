"""Models that no catalogue holds: `--hub` lets this process ask the Hugging Face Hub."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from api_schemas.model import ModelRef
from service.tuning.models.catalogue import resolve_model
from service.tuning.models.spec import ModelSpec

if TYPE_CHECKING:
    from service.store.models import ModelRecord

ResolveModel = Callable[[ModelRef], ModelSpec]

hub_option = click.option(
    "--hub",
    is_flag=True,
    envvar="SETPOINT_HUB_LOOKUP",
    help="Ask the Hugging Face Hub for models that no catalogue holds; offline otherwise.",
)


def resolver(*, uses_hub: bool) -> ResolveModel:
    """Return the look-up of models: the bundled ones, and the Hub's on request.

    HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are followed; each model is asked for once.
    """
    if not uses_hub:
        return resolve_model
    try:
        from service.hub import make_hub_resolver  # noqa: PLC0415  # an extra holds its client
    except ImportError:
        raise click.UsageError("--hub needs the extra setpoint[service]") from None
    return make_hub_resolver(resolve_model, cache=_ProcessCache())


class _ProcessCache:
    """Configs for as long as this process lives."""

    def __init__(self) -> None:
        self._records: dict[str, ModelRecord] = {}

    def find_from_hub(self, model_id: str) -> "ModelRecord | None":
        return self._records.get(model_id)

    def remember_from_hub(self, record: "ModelRecord") -> None:
        self._records[record.id] = record
