"""The vLLM releases that were read, and the settings each one knows."""

from typing import Annotated

from litestar import Response, get
from litestar.openapi.spec import Example
from litestar.params import PathParameter

from api_schemas.catalogue import (
    EngineVersionDescription,
    EngineVersionList,
    SettingDescription,
    SettingList,
)
from service.api.bodies import encode
from service.api.describe import JSON, Answer, describe
from service.api.problems import not_found
from service.tuning.engine.accepted_values import listed_values
from service.tuning.engine.facts import known_settings, setting_history
from service.tuning.engine.versions import NEWEST, EngineVersion, known_releases, parse_version
from service.tuning.errors import UnknownEngineVersion

VersionText = Annotated[
    str,
    PathParameter(max_length=64, description="vLLM release.", examples=[Example(value="0.33.0")]),
]


@get(
    "/engine-versions",
    operation_id="listEngineVersions",
    summary="List the known vLLM releases",
    tags=["catalogues"],
    sync_to_thread=False,
    opt=describe(Answer(200, "Releases, oldest first.", kind=EngineVersionList)),
)
def list_engine_versions() -> Response[bytes]:
    """Return every vLLM release whose source was read."""
    items = [_describe(version) for version in known_releases()]
    return Response(encode(EngineVersionList(items=items)), media_type=JSON)


@get(
    "/engine-versions/{version:str}",
    operation_id="getEngineVersion",
    summary="Show one vLLM release",
    tags=["catalogues"],
    sync_to_thread=False,
    opt=describe(
        Answer(200, "The release.", kind=EngineVersionDescription), problems=("not-found",)
    ),
)
def get_engine_version(version: VersionText) -> Response[bytes]:
    """Return whether a release is supported, and where its settings are."""
    return Response(encode(_describe(_parse(version))), media_type=JSON)


@get(
    "/engine-versions/{version:str}/settings",
    operation_id="listEngineSettings",
    summary="List the settings of one vLLM release",
    tags=["catalogues"],
    sync_to_thread=False,
    opt=describe(
        Answer(200, "Every setting that the release knows.", kind=SettingList),
        problems=("not-found",),
    ),
)
def list_engine_settings(version: VersionText) -> Response[bytes]:
    """Return every launch setting of a release, with the values it takes where they are listed."""
    parsed = _parse(version)
    items = [_setting(name, parsed) for name in sorted(known_settings(parsed))]
    return Response(encode(SettingList(version=parsed.text, items=items)), media_type=JSON)


def _parse(text: str) -> EngineVersion:
    try:
        return parse_version(text)
    except UnknownEngineVersion as error:
        known = error.message.partition(": ")[2]
        raise not_found("vLLM release", text, hint=f"{known}.") from None


def _describe(version: EngineVersion) -> EngineVersionDescription:
    return EngineVersionDescription(
        version=version.text,
        supported=not version.is_legacy,
        newest=version == NEWEST,
        settings_url=f"/engine-versions/{version.text}/settings",
    )


def _setting(name: str, version: EngineVersion) -> SettingDescription:
    history = setting_history(name)
    values = listed_values(name, version)
    return SettingDescription(
        name=name,
        flag="--" + name.replace("_", "-"),
        choices=None if values is None else list(values),
        introduced=history.introduced if history else None,
        removed=history.removed if history else None,
        replaced_by=list(history.replaced_by) if history else [],
        note=history.note if history else "",
    )
