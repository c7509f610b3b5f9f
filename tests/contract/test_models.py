"""What the store of models promises, on every kind of server."""

import msgspec
import redis

from service.store import keys
from service.store.models import ModelRecord, ModelStore

_RECORD = ModelRecord(id="team/model", config={"hidden_size": 8, "nested": {"a": [1, None]}})


def test_a_registered_model_comes_back_as_it_was(client: redis.Redis) -> None:
    """What was registered under an id is found under it, and tells whether it was new."""
    store = ModelStore(client)

    assert store.register(_RECORD) is True
    assert store.find(_RECORD.id) == _RECORD


def test_registering_again_replaces(client: redis.Redis) -> None:
    """A second registration under the same id wins and is not new."""
    store = ModelStore(client)
    store.register(_RECORD)
    changed = msgspec.structs.replace(_RECORD, weights_bytes=5)

    assert store.register(changed) is False
    assert store.find(_RECORD.id) == changed
    assert store.all() == [changed]


def test_models_are_listed_by_id(client: redis.Redis) -> None:
    """All registered models are listed once, in the order of their ids."""
    store = ModelStore(client)
    assert store.all() == []
    for name in ("c/x", "a/x", "b/x"):
        store.register(msgspec.structs.replace(_RECORD, id=name))

    assert [record.id for record in store.all()] == ["a/x", "b/x", "c/x"]


def test_hub_configs_are_kept_for_their_lifetime_apart_from_registered_ones(
    client: redis.Redis,
) -> None:
    """A config from the hub expires, and never stands in for a registered model."""
    store = ModelStore(client)

    store.remember_from_hub(_RECORD)

    assert store.find_from_hub(_RECORD.id) == _RECORD
    assert store.find(_RECORD.id) is None
    ttl = int(str(client.ttl(keys.hub_model(_RECORD.id))))
    assert 0 < ttl <= keys.HUB_MODEL_LIFETIME_S
