"""Every key and lifetime in the store; nobody else builds a key."""

_PREFIX = "setpoint"

HUB_MODEL_LIFETIME_S = 24 * 3600
"""A config read from the model hub is read again after a day."""


def recommendation(identifier: str) -> str:
    """Hash: `record` (JSON), `body` (the bytes answered), `indexes` (JSON list of keys)."""
    return f"{_PREFIX}:recommendation:{identifier}"


def recommendations() -> str:
    """Sorted set of all recommendation ids, in text order, which is time order."""
    return f"{_PREFIX}:recommendations"


def recommendations_of_model(model: str) -> str:
    """Sorted set of the ids for one model."""
    return f"{_PREFIX}:recommendations:model:{model}"


def recommendations_of_gpu(gpu: str) -> str:
    """Sorted set of the ids for one GPU."""
    return f"{_PREFIX}:recommendations:gpu:{gpu}"


def recommendations_with_label(name: str) -> str:
    """Sorted set of the ids that carry a label of this name."""
    return f"{_PREFIX}:recommendations:label:{name}"


def recommendations_with_label_value(name: str, value: str) -> str:
    """Sorted set of the ids that carry this label with this value."""
    return f"{_PREFIX}:recommendations:label:{name}={value}"


def registered_model(model_id: str) -> str:
    """Text: the JSON record of a model that a caller registered."""
    return f"{_PREFIX}:model:{model_id}"


def registered_models() -> str:
    """Sorted set of the registered model ids, in text order."""
    return f"{_PREFIX}:models"


def hub_model(model_id: str) -> str:
    """Text: the JSON record of a config read from the model hub; lives `HUB_MODEL_LIFETIME_S`."""
    return f"{_PREFIX}:hub-model:{model_id}"


WORKER_LIFETIME_S = 45
"""A node is gone when it has not sent a heartbeat for so long."""


def worker(node: str) -> str:
    """Text: the JSON record of a node; lives `WORKER_LIFETIME_S` after each heartbeat."""
    return f"{_PREFIX}:worker:{node}"


def workers() -> str:
    """Set of the names of nodes that ever registered."""
    return f"{_PREFIX}:workers"


def validation(identifier: str) -> str:
    """Hash: `attempt`, `cancel`, and one field of JSON per field of the record."""
    return f"{_PREFIX}:validation:{identifier}"


def validation_points(identifier: str) -> str:
    """List of the load points, JSON each, as they came."""
    return f"{_PREFIX}:validation:{identifier}:load-points"


def validation_events(identifier: str) -> str:
    """Stream of what happened to a validation; entry ids are the event ids of the API."""
    return f"{_PREFIX}:validation:{identifier}:events"


VALIDATION_OWNER_LIFETIME_S = 15
"""A run is lost when its process has not renewed its claim for so long."""


def validation_owner(identifier: str) -> str:
    """Text: the node that works on a validation; lives `VALIDATION_OWNER_LIFETIME_S`."""
    return f"{_PREFIX}:validation:{identifier}:owner"


def validations_of_recommendation(identifier: str) -> str:
    """Sorted set of the ids of a recommendation's validations, in text order: time order."""
    return f"{_PREFIX}:recommendation:{identifier}:validations"


def unfinished_validations() -> str:
    """Set of the ids of validations that have not ended."""
    return f"{_PREFIX}:validations:unfinished"


LEASE_LIFETIME_S = 20
"""A lease is free again when its holder has not renewed it for so long."""


def lease(resource: str) -> str:
    """Text: the token of the one who holds a device or a node; lives `LEASE_LIFETIME_S`."""
    return f"{_PREFIX}:lease:{resource}"


def measurement(identifier: str) -> str:
    """Hash: `record` (JSON), `indexes` (JSON list of keys)."""
    return f"{_PREFIX}:measurement:{identifier}"


def measurement_of_content(digest: str) -> str:
    """Text: the id of the measurement with this content, so that it is stored once."""
    return f"{_PREFIX}:measurement-content:{digest}"


def measurements() -> str:
    """Sorted set of all measurement ids, in text order, which is time order."""
    return f"{_PREFIX}:measurements"


def measurements_of(kind: str, value: str) -> str:
    """Sorted set of the ids with this model, GPU, release, tool, backend or configuration."""
    return f"{_PREFIX}:measurements:{kind}:{value}"


def calibrations_of(gpu: str) -> str:
    """Hash: by configuration key the JSON record of the calibration on this GPU."""
    return f"{_PREFIX}:calibrations:{gpu}"


def calibrated_gpus() -> str:
    """Set of the GPUs with calibrations, used or refused."""
    return f"{_PREFIX}:calibrated-gpus"


def study(identifier: str) -> str:
    """Hash: `record` and one field of JSON per changing part of a study."""
    return f"{_PREFIX}:study:{identifier}"


def studies() -> str:
    """Sorted set of all study ids, in text order, which is time order."""
    return f"{_PREFIX}:studies"


def study_trials(identifier: str) -> str:
    """Hash: by number the JSON record of a trial, in any state."""
    return f"{_PREFIX}:study:{identifier}:trials"
