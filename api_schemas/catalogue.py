"""What Setpoint knows: models, GPUs, workload presets, vLLM releases, rules."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import Json, Request, Response
from api_schemas.explanation import Severity, Source
from api_schemas.workload import PresetDescription

ModelOrigin = Literal["bundled", "registered"]


class ModelRegistration(Request, frozen=True, kw_only=True):
    """A model to know by its id from now on."""

    config: Annotated[
        dict[str, Json], Meta(min_length=1, description="The model's config.json as it is.")
    ]
    weights_bytes: (
        Annotated[int, Meta(ge=1, le=10**14, description="Total bytes of the checkpoint's files.")]
        | None
    ) = None


class ModelSummary(Response, frozen=True, kw_only=True):
    """A row of the list of models."""

    id: str
    origin: ModelOrigin
    architecture: str
    supported: Annotated[bool, Meta(description="Whether its layout can be estimated.")]
    url: str


class ModelList(Response, frozen=True, kw_only=True):
    """Models: registered ones first, then the bundled ones."""

    items: list[ModelSummary]


class ModelDescription(Response, frozen=True, kw_only=True):
    """A model with the config that answers are computed from."""

    id: str
    origin: ModelOrigin
    architecture: str
    supported: Annotated[bool, Meta(description="Whether its layout can be estimated.")]
    aliases: list[str]
    parameters: Annotated[int | None, Meta(description="As the model's card states them.")]
    weights_bytes: Annotated[
        int | None, Meta(description="Total bytes of the checkpoint's files, when known.")
    ]
    config: dict[str, Json]
    assumed: Annotated[
        list[str], Meta(description="Fields of `config` that the source does not hold.")
    ]
    note: str | None
    source: list[Source]


class GpuSummary(Response, frozen=True, kw_only=True):
    """A row of the list of GPUs."""

    name: str
    vendor: str
    arch: str
    memory_gib: Annotated[float, Meta(description="As the driver reports it, GiB.")]
    bandwidth_gb_s: Annotated[float, Meta(description="Memory bandwidth, GB/s (10^9 bytes).")]
    url: str


class GpuList(Response, frozen=True, kw_only=True):
    """GPUs in the catalogue's order."""

    items: list[GpuSummary]


class FigureDescription(Response, frozen=True, kw_only=True):
    """One number of the catalogue and where it comes from."""

    value: float | str
    source: str
    verified: Annotated[bool, Meta(description="Whether somebody read it at the source.")]


class GpuDescription(Response, frozen=True, kw_only=True):
    """A GPU with the source of every number."""

    name: str
    vendor: str
    arch: str
    gpu_class: str
    driver_name: str
    aliases: list[str]
    figures: dict[str, FigureDescription]
    unified_memory: bool
    note: str | None


class PresetList(Response, frozen=True, kw_only=True):
    """Named workloads with their usual targets."""

    items: list[PresetDescription]


class EngineVersionDescription(Response, frozen=True, kw_only=True):
    """A vLLM release that was read."""

    version: str
    supported: Annotated[
        bool, Meta(description="False for releases before 0.8, answered with low confidence.")
    ]
    newest: bool
    settings_url: str


class EngineVersionList(Response, frozen=True, kw_only=True):
    """vLLM releases, oldest first."""

    items: list[EngineVersionDescription]


class SettingDescription(Response, frozen=True, kw_only=True):
    """A launch setting of one vLLM release."""

    name: str
    flag: Annotated[str, Meta(description="As it stands on vLLM's command line.")]
    choices: Annotated[
        list[str | int] | None, Meta(description="Values it takes, where it has a known list.")
    ]
    introduced: Annotated[
        str | None, Meta(description="First release with it; null when the oldest one has it.")
    ]
    removed: Annotated[str | None, Meta(description="First release without it.")]
    replaced_by: list[str]
    note: str


class SettingList(Response, frozen=True, kw_only=True):
    """Every launch setting that a release knows, by name."""

    version: str
    items: list[SettingDescription]


class RuleDescription(Response, frozen=True, kw_only=True):
    """A tuning rule: what it looks for and why."""

    id: str
    title: str
    help: str
    settings: list[str]
    severity: Severity
    source: list[Source]
    since: Annotated[str | None, Meta(description="First vLLM release that it holds for.")]
    until: Annotated[
        str | None, Meta(description="First vLLM release that it no longer holds for.")
    ]


class RuleList(Response, frozen=True, kw_only=True):
    """Rules by id."""

    items: list[RuleDescription]
