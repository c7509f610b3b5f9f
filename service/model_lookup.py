"""Where a model's config comes from: the request, the store, the catalogue, the model hub."""

from collections.abc import Callable

import msgspec

from api_schemas.model import ModelRef
from service.store.models import ModelStore
from service.tuning.models.catalogue import resolve_model
from service.tuning.models.spec import ModelSpec

ResolveModel = Callable[[ModelRef], ModelSpec]


def make_resolver(models: ModelStore) -> ResolveModel:
    """Return a look-up that knows registered models beside the bundled ones.

    An inline config wins, then what was registered under the id, then the catalogue.
    """

    def resolve(reference: ModelRef) -> ModelSpec:
        return resolve_model(with_registered_config(reference, models))

    return resolve


def with_registered_config(reference: ModelRef, models: ModelStore) -> ModelRef:
    """Return the reference with the config that was registered for its id, if there is one."""
    if reference.config is not None:
        return reference
    record = models.find(reference.id)
    if record is None:
        return reference
    weights_bytes = reference.weights_bytes or record.weights_bytes
    return msgspec.structs.replace(reference, config=record.config, weights_bytes=weights_bytes)
