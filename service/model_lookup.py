"""Where a model's config comes from: the request, the store, the catalogue, what the hub showed."""

from collections.abc import Callable

import msgspec

from api_schemas.model import ModelRef
from service.hub import cache_id
from service.store.models import ModelRecord, ModelStore
from service.tuning.errors import UnknownModel
from service.tuning.models.catalogue import resolve_model
from service.tuning.models.spec import ModelSpec

ResolveModel = Callable[[ModelRef], ModelSpec]


def make_resolver(models: ModelStore) -> ResolveModel:
    """Return a look-up that knows registered models beside the bundled ones.

    An inline config wins, then what was registered under the id, then the catalogue, then what the
    model hub showed within the last day: so a worker knows what the service was asked about.
    """

    def resolve(reference: ModelRef) -> ModelSpec:
        known = with_registered_config(reference, models)
        try:
            return resolve_model(known)
        except UnknownModel:
            record = models.find_from_hub(cache_id(reference))
            if record is None or known.config is not None:
                raise
        return resolve_model(_with_config(reference, record))

    return resolve


def with_registered_config(reference: ModelRef, models: ModelStore) -> ModelRef:
    """Return the reference with the config that was registered for its id, if there is one."""
    if reference.config is not None:
        return reference
    record = models.find(reference.id)
    if record is None:
        return reference
    return _with_config(reference, record)


def _with_config(reference: ModelRef, record: ModelRecord) -> ModelRef:
    weights_bytes = reference.weights_bytes or record.weights_bytes
    return msgspec.structs.replace(reference, config=record.config, weights_bytes=weights_bytes)
