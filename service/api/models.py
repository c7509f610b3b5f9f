"""The catalogue of models, and the models that callers register."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from litestar import Response, delete, get, put
from litestar.openapi.spec import Example
from litestar.params import PathParameter, QueryParameter, RawBody

from api_schemas.base import Json, ModelId
from api_schemas.catalogue import ModelDescription, ModelList, ModelRegistration, ModelSummary
from api_schemas.explanation import Source
from service.api import examples
from service.api.bodies import encode, read_body
from service.api.context import Context, InjectedContext
from service.api.describe import JSON, Answer, Body, describe
from service.api.problems import not_found, refuse_field
from service.identifiers import timestamp
from service.store.models import ModelRecord
from service.tuning.errors import TuningError, UnknownModel
from service.tuning.models.catalogue import ModelEntry, all_models, find_model, model_source
from service.tuning.models.hf_config import read_config

ModelPath = Annotated[
    str,
    PathParameter(
        description="Model id as on the Hugging Face Hub; its slash stays as it is.",
        examples=[Example(value="meta-llama/Llama-3.1-8B-Instruct")],
        schema_extra=msgspec.json.schema(ModelId),
    ),
]
_REGISTERED = Source(title="Registered by a caller", where="PUT /models")


@get(
    "/models",
    operation_id="listModels",
    summary="List the known models",
    tags=["catalogues"],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "Registered models, then bundled ones.", kind=ModelList),
        problems=("store-unavailable",),
    ),
)
def list_models(
    *,
    context: InjectedContext,
    q: Annotated[
        str | None,
        QueryParameter(max_length=256, description="Parts of an id or alias, in any order."),
    ] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=1000, description="Most rows to return.")] = 100,
) -> Response[bytes]:
    """Return the models whose id or alias contains every word; case does not matter."""
    words = (q or "").casefold().split()
    items = [
        row
        for row, names in _rows(context)
        if any(all(word in name for word in words) for name in names)
    ]
    return Response(encode(ModelList(items=items[:limit])), media_type=JSON)


@get(
    "/models/{model_id:path}",
    operation_id="getModel",
    summary="Show one model with its config",
    tags=["catalogues"],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "The model.", kind=ModelDescription),
        problems=("not-found", "store-unavailable"),
    ),
)
def get_model(model_id: ModelPath, context: InjectedContext) -> Response[bytes]:
    """Return a model by its id or alias; what was registered under the id wins."""
    wanted = model_id.removeprefix("/")
    record = context.models.find(wanted)
    if record is not None:
        return Response(encode(_describe_record(record)), media_type=JSON)
    try:
        entry = find_model(wanted)
    except UnknownModel as error:
        raise not_found("model", wanted, hint=error.message) from None
    return Response(encode(_describe_entry(entry)), media_type=JSON)


@put(
    "/models/{model_id:path}",
    operation_id="registerModel",
    summary="Register a model's config",
    tags=["catalogues"],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "The config that was known before is replaced.", kind=ModelDescription),
        Answer(201, "The model is known now.", kind=ModelDescription, headers=("Location",)),
        body=Body(
            ModelRegistration,
            "The model's config.json, and the size of its checkpoint when known.",
            {"a small Llama": examples.model_registration},
        ),
        problems=("unsupported-architecture", "store-unavailable"),
    ),
)
def register_model(model_id: ModelPath, body: RawBody, context: InjectedContext) -> Response[bytes]:
    """Store a config.json under an id, for every later request of the tenant that names it.

    Under the id of a bundled model it takes that one's place.
    """
    wanted = _check_id(model_id.removeprefix("/"))
    registration = read_body(body, ModelRegistration)
    _check_config(registration, model_id=wanted)
    record = ModelRecord(
        id=wanted,
        config=registration.config,
        weights_bytes=registration.weights_bytes,
        stored_at=timestamp(context.now()),
    )
    is_new = context.models.register(record)
    return Response(
        encode(_describe_record(record)),
        media_type=JSON,
        status_code=201 if is_new else 200,
        headers={"Location": _address(wanted)} if is_new else {},
    )


@delete(
    "/models/{model_id:path}",
    operation_id="deleteModel",
    summary="Remove a registered model",
    tags=["catalogues"],
    sync_to_thread=True,
    opt=describe(
        Answer(
            204,
            "The registration is gone; a bundled model of that id is known again.",
            media_types=(),
        ),
        problems=("not-found", "store-unavailable"),
    ),
)
def delete_model(model_id: ModelPath, context: InjectedContext) -> None:
    """Remove what the tenant registered under exactly this id; recommendations made of it stay."""
    wanted = model_id.removeprefix("/")
    if not context.models.delete(wanted):
        raise not_found("registered model", wanted, hint="Bundled models stay.")


def _rows(context: Context) -> Iterator[tuple[ModelSummary, list[str]]]:
    """Yield each model once, with the names it can be found by."""
    registered = context.models.all()
    for record in registered:
        summary = ModelSummary(
            id=record.id,
            origin="registered",
            architecture=_architecture(record.config),
            supported=True,
            url=_address(record.id),
        )
        yield summary, [record.id.casefold()]
    hidden = {record.id for record in registered}
    for entry in all_models():
        if entry.id in hidden:
            continue
        summary = ModelSummary(
            id=entry.id,
            origin="bundled",
            architecture=_architecture(entry.config),
            supported=entry.is_supported,
            url=_address(entry.id),
        )
        yield summary, [name.casefold() for name in (entry.id, *entry.aliases)]


def _describe_record(record: ModelRecord) -> ModelDescription:
    return ModelDescription(
        id=record.id,
        origin="registered",
        architecture=_architecture(record.config),
        supported=True,
        aliases=[],
        parameters=None,
        weights_bytes=record.weights_bytes,
        config=record.config,
        assumed=[],
        note=None,
        source=[_REGISTERED],
    )


def _describe_entry(entry: ModelEntry) -> ModelDescription:
    return ModelDescription(
        id=entry.id,
        origin="bundled",
        architecture=_architecture(entry.config),
        supported=entry.is_supported,
        aliases=list(entry.aliases),
        parameters=entry.parameters,
        weights_bytes=entry.weights_bytes,
        config=entry.config,
        assumed=list(entry.assumed),
        note=entry.note,
        source=[Source(title=model_source(entry), where=entry.source)],
    )


def _check_id(model_id: str) -> str:
    try:
        return msgspec.convert(model_id, ModelId)
    except msgspec.ValidationError as error:
        raise refuse_field("model_id", str(error)) from None


def _check_config(registration: ModelRegistration, *, model_id: str) -> None:
    """Refuse a config that no estimate could be made from, with the field's place in this body."""
    try:
        read_config(
            registration.config, model_id=model_id, weights_bytes=registration.weights_bytes
        )
    except TuningError as error:
        error.pointer = error.pointer.removeprefix("/model")
        raise


def _architecture(config: dict[str, Json]) -> str:
    named = config.get("architectures")
    first = named[0] if isinstance(named, list) and named else config.get("model_type")
    return first if isinstance(first, str) else "unknown"


def _address(model_id: str) -> str:
    return f"/models/{model_id}"
