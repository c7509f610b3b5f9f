"""What the store of models promises, on every kind of server."""

import msgspec
import pytest
import redis

from api_schemas.model import ModelRef
from service.model_lookup import make_resolver
from service.store import keys
from service.store.models import ModelRecord, ModelStore
from service.tuning.errors import UnknownModel

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


def test_what_was_removed_is_gone_for_its_tenant_alone(client: redis.Redis) -> None:
    """A removed model is neither found nor listed; others keep theirs, and it may come back."""
    store, other = ModelStore(client), ModelStore(client, tenant="team-b")
    store.register(_RECORD)
    other.register(_RECORD)

    assert [store.delete(_RECORD.id), store.delete(_RECORD.id)] == [True, False]
    assert (store.find(_RECORD.id), store.all()) == (None, [])
    assert other.all() == [_RECORD]
    assert store.register(_RECORD) is True


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


def test_what_the_hub_showed_is_known_without_asking_again(client: redis.Redis) -> None:
    """A worker resolves the model that the service found on the hub; the catalogue comes first."""
    store = ModelStore(client)
    resolve = make_resolver(store)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 2048,
        "torch_dtype": "bfloat16",
    }
    with pytest.raises(UnknownModel):
        resolve(ModelRef(id="acme/shown"))

    store.remember_from_hub(ModelRecord(id="acme/shown", config=config, weights_bytes=4096))
    store.remember_from_hub(ModelRecord(id="Qwen/Qwen3-8B", config=config))

    found = resolve(ModelRef(id="acme/shown"))
    assert (found.num_layers, found.weights_bytes) == (2, 4096)
    assert resolve(ModelRef(id="Qwen/Qwen3-8B")).num_layers == 36
