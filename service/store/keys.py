"""Every key and lifetime in the store; nobody else builds a key."""

_PREFIX = "setpoint"
DEFAULT_TENANT = "default"
"""The tenant of callers without a key; its keys have no part for the tenant."""

HUB_MODEL_LIFETIME_S = 24 * 3600
"""A config read from the model hub is read again after a day."""


def _of(tenant: str) -> str:
    return _PREFIX if tenant == DEFAULT_TENANT else f"{_PREFIX}:tenant:{tenant}"


def recommendation(identifier: str) -> str:
    """Hash: `record`, `body` (the bytes answered), `indexes` (JSON list of keys), `tenant`."""
    return f"{_PREFIX}:recommendation:{identifier}"


def recommendations(*, tenant: str = DEFAULT_TENANT) -> str:
    """Sorted set of all recommendation ids, in text order, which is time order."""
    return f"{_of(tenant)}:recommendations"


def recommendations_of_model(model: str, *, tenant: str = DEFAULT_TENANT) -> str:
    """Sorted set of the ids for one model."""
    return f"{_of(tenant)}:recommendations:model:{model}"


def recommendations_of_gpu(gpu: str, *, tenant: str = DEFAULT_TENANT) -> str:
    """Sorted set of the ids for one GPU."""
    return f"{_of(tenant)}:recommendations:gpu:{gpu}"


def recommendations_with_label(name: str, *, tenant: str = DEFAULT_TENANT) -> str:
    """Sorted set of the ids that carry a label of this name."""
    return f"{_of(tenant)}:recommendations:label:{name}"


def recommendations_with_label_value(name: str, value: str, *, tenant: str = DEFAULT_TENANT) -> str:
    """Sorted set of the ids that carry this label with this value."""
    return f"{_of(tenant)}:recommendations:label:{name}={value}"


def registered_model(model_id: str, *, tenant: str = DEFAULT_TENANT) -> str:
    """Text: the JSON record of a model that a caller registered."""
    return f"{_of(tenant)}:model:{model_id}"


def registered_models(*, tenant: str = DEFAULT_TENANT) -> str:
    """Sorted set of the registered model ids, in text order."""
    return f"{_of(tenant)}:models"


def hub_model(model_id: str) -> str:
    """Text: the JSON record of a config read from the model hub; lives `HUB_MODEL_LIFETIME_S`."""
    return f"{_PREFIX}:hub-model:{model_id}"


WORKER_LIFETIME_S = 45
"""A node is gone when it has not sent a heartbeat for so long."""


def worker(node: str) -> str:
    """Text: the JSON record of a node; lives `WORKER_LIFETIME_S` after each heartbeat."""
    return f"{_PREFIX}:worker:{node}"


def store_identity() -> str:
    """Text: a random name of this store, made by the first worker."""
    return f"{_PREFIX}:identity"


def workers() -> str:
    """Set of the names of nodes that ever registered."""
    return f"{_PREFIX}:workers"


def validation(identifier: str) -> str:
    """Hash: `attempt`, `cancel`, `tenant`, `devices`, and one field of JSON per recorded field."""
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


def waiting_runs() -> str:
    """Sorted set of runs that no worker has taken: queue, devices, tenant, id, kind, by text."""
    return f"{_PREFIX}:runs:waiting-by-devices"


def leasing_runs() -> str:
    """Sorted set of runs that were taken and wait for devices, by the number of their turn."""
    return f"{_PREFIX}:runs:leasing-by-devices"


UNSERVED_LIFETIME_S = 60
"""That nobody can serve a run is forgotten when nobody has looked for so long."""


def unserved_since(identifier: str) -> str:
    """Text: the store's clock when a waiting run was first seen that no live node can serve.

    It lives `UNSERVED_LIFETIME_S` after each look.
    """
    return f"{_PREFIX}:run:{identifier}:unserved-since"


def sweep_turn() -> str:
    """Text: that an API process swept just now; lives until the next sweep is due."""
    return f"{_PREFIX}:sweep-turn"


def turn_counter() -> str:
    """Number: how many runs were ever taken."""
    return f"{_PREFIX}:turn"


TURNS_LIFETIME_S = 7 * 24 * 3600
"""Who had the last turns in a queue is forgotten when nothing was taken from it for so long."""


def turns(queue: str) -> str:
    """Hash: by tenant the number of its last turn in a queue; lives `TURNS_LIFETIME_S`."""
    return f"{_PREFIX}:turns:{queue}"


def webhook_delivery(run_id: str) -> str:
    """Hash: `tries`, `tenant`, and one field of JSON per field of the record but its tries."""
    return f"{_PREFIX}:webhook:{run_id}"


def webhook_attempts(run_id: str) -> str:
    """List of the tries of a delivery, JSON each, bounded."""
    return f"{_PREFIX}:webhook:{run_id}:attempts"


def webhook_deliveries(*, tenant: str = DEFAULT_TENANT) -> str:
    """Sorted set of the ids of a tenant's deliveries, in text order, which is time order."""
    return f"{_of(tenant)}:webhooks"


def due_webhooks() -> str:
    """Sorted set of runs whose end is to be told, by time in milliseconds; 0 is at once."""
    return f"{_PREFIX}:webhooks:due"


def prediction_errors() -> str:
    """Hash: counters of prediction errors, by group, figure and bucket."""
    return f"{_PREFIX}:metrics:prediction-errors"


def prediction_error_groups() -> str:
    """Set of the groups of prediction errors that are told apart, bounded."""
    return f"{_PREFIX}:metrics:prediction-error-groups"


def webhook_outcomes() -> str:
    """Hash: how many tries ended how."""
    return f"{_PREFIX}:metrics:webhook-outcomes"


LEASE_LIFETIME_S = 20
"""A lease is free again when its holder has not renewed it for so long."""


def lease(resource: str) -> str:
    """Text: the token of the one who holds a device or a node; lives `LEASE_LIFETIME_S`."""
    return f"{_PREFIX}:lease:{resource}"


def measurement(identifier: str) -> str:
    """Hash: `record` (JSON), `indexes` (JSON list of keys), `tenant`."""
    return f"{_PREFIX}:measurement:{identifier}"


def measurement_of_content(digest: str, *, tenant: str = DEFAULT_TENANT) -> str:
    """Text: the id of the measurement with this content, so that it is stored once."""
    return f"{_of(tenant)}:measurement-content:{digest}"


def measurements(*, tenant: str = DEFAULT_TENANT) -> str:
    """Sorted set of all measurement ids, in text order, which is time order."""
    return f"{_of(tenant)}:measurements"


def measurements_of(kind: str, value: str, *, tenant: str = DEFAULT_TENANT) -> str:
    """Sorted set of the ids with this model, GPU, release, tool, backend or configuration."""
    return f"{_of(tenant)}:measurements:{kind}:{value}"


def calibrations_of(gpu: str, *, tenant: str = DEFAULT_TENANT) -> str:
    """Hash: by configuration key the JSON record of the calibration on this GPU."""
    return f"{_of(tenant)}:calibrations:{gpu}"


def calibrated_gpus(*, tenant: str = DEFAULT_TENANT) -> str:
    """Set of the GPUs with calibrations, used or refused."""
    return f"{_of(tenant)}:calibrated-gpus"


def study(identifier: str) -> str:
    """Hash: `attempt`, `cancel`, `tenant`, `devices`, and one field of JSON per recorded field."""
    return f"{_PREFIX}:study:{identifier}"


def study_trials(identifier: str) -> str:
    """Hash: by number the JSON record of a trial, in any state."""
    return f"{_PREFIX}:study:{identifier}:trials"


def study_events(identifier: str) -> str:
    """Stream of what happened to a study; entry ids are the event ids of the API."""
    return f"{_PREFIX}:study:{identifier}:events"


def study_owner(identifier: str) -> str:
    """Text: the node that works on a study; lives `VALIDATION_OWNER_LIFETIME_S`."""
    return f"{_PREFIX}:study:{identifier}:owner"


def studies(*, tenant: str = DEFAULT_TENANT) -> str:
    """Sorted set of all study ids, in text order, which is time order."""
    return f"{_of(tenant)}:studies"


def unfinished_studies() -> str:
    """Set of the ids of studies that have not ended."""
    return f"{_PREFIX}:studies:unfinished"


IDEMPOTENCY_LIFETIME_S = 24 * 3600
"""An Idempotency-Key is remembered with its answer for a day."""
IDEMPOTENCY_LOCK_LIFETIME_S = 20.0
"""A request whose process was lost frees its Idempotency-Key after so long."""


def idempotent_request(tenant: str, digest: str) -> str:
    """Hash: `fingerprint`, `attempt` and `answer`; lives `IDEMPOTENCY_LIFETIME_S`."""
    return f"{_of(tenant)}:idempotency:{digest}"


def idempotency_lock(tenant: str, digest: str) -> str:
    """Text: token of the request that works; lives `IDEMPOTENCY_LOCK_LIFETIME_S`."""
    return f"{_of(tenant)}:idempotency:{digest}:lock"


def api_key(identifier: str) -> str:
    """Hash: `record` (JSON without any secret), `last_used_at`."""
    return f"{_PREFIX}:api-key:{identifier}"


def api_keys() -> str:
    """Sorted set of the ids of all keys ever made, in text order."""
    return f"{_PREFIX}:api-keys"


def audit_trail(tenant: str) -> str:
    """Stream of who did what when, bounded."""
    return f"{_of(tenant)}:audit"


def token_bucket(budget: str, holder: str) -> str:
    """Hash: `level` and `at_ms` of a budget; lives as long as it takes to fill up."""
    return f"{_PREFIX}:bucket:{budget}:{holder}"
