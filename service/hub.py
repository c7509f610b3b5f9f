"""Configs of models that no catalogue holds, read from the Hugging Face Hub.

Only config.json and the list of files are read; code of a repository is never run.
"""

import json
import queue
import tempfile
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

import msgspec

from api_schemas.base import Json
from api_schemas.model import ModelRef
from service.store.models import ModelRecord
from service.tuning.errors import InvalidRequest, TuningError, UnknownModel
from service.tuning.models.spec import ModelSpec

ResolveModel = Callable[[ModelRef], ModelSpec]

_CONFIG = "config.json"
_LARGEST_CONFIG_BYTES = 4 * 1024 * 1024
_OTHER_WAY = "Send its config.json as model.config, or register it with PUT /models."
_HTTP_SLACK = 2
"""The client's own limit is looser than ours, so that ours is the one that speaks."""
_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the Hub is asked; what is None follows huggingface_hub's own variables."""

    endpoint: str | None = None
    """Address of the Hub, as HF_ENDPOINT; None takes that variable."""
    token: str | None = None
    """Access token; None takes HF_TOKEN or the saved login. It is never shown."""
    is_offline: bool = False
    """Read only what a local Hub cache holds; HF_HUB_OFFLINE says the same."""
    timeout_s: float = 10.0
    """Longest wait for one look-up, seconds."""

    def __repr__(self) -> str:
        """Return the options without the token."""
        return (
            f"HubOptions(endpoint={self.endpoint!r}, is_offline={self.is_offline}, "
            f"timeout_s={self.timeout_s})"
        )


class HubCache(Protocol):
    """Where configs that were read are kept for a while."""

    def find_from_hub(self, model_id: str) -> ModelRecord | None:
        """Return the config that was read lately, or None."""

    def remember_from_hub(self, record: ModelRecord) -> None:
        """Keep a config that was read."""


def make_hub_resolver(
    resolve: ResolveModel, *, cache: HubCache, options: HubOptions | None = None
) -> ResolveModel:
    """Return a look-up that asks the Hub for what `resolve` does not know.

    Whether there is such a look-up at all is the caller's setting: it is off by default.
    """

    def resolve_with_hub(reference: ModelRef) -> ModelSpec:
        try:
            return resolve(reference)
        except UnknownModel:
            record = find_on_hub(reference, cache=cache, options=options or HubOptions())
        weights_bytes = reference.weights_bytes or record.weights_bytes
        return resolve(
            msgspec.structs.replace(reference, config=record.config, weights_bytes=weights_bytes)
        )

    return resolve_with_hub


def find_on_hub(
    reference: ModelRef, *, cache: HubCache, options: HubOptions | None = None
) -> ModelRecord:
    """Return a model's config and the bytes of its weights, from `cache` or else the Hub.

    Raises UnknownModel when the Hub has no such model or does not show it, and InvalidRequest
    when what it has is no model that can be described.
    """
    cached = cache.find_from_hub(cache_id(reference))
    if cached is not None:
        return cached
    asked = options or HubOptions()
    record = _within(asked.timeout_s, lambda: _read(reference, options=asked), reference=reference)
    cache.remember_from_hub(record)
    return record


def cache_id(reference: ModelRef) -> str:
    """Return the id under which a cache keeps what the Hub showed: a revision is its own model."""
    return f"{reference.id}@{reference.revision}" if reference.revision else reference.id


def _within(
    timeout_s: float, read: Callable[[], ModelRecord], *, reference: ModelRef
) -> ModelRecord:
    """Return what `read` returns, or give up on its thread after `timeout_s`.

    The HTTP client limits each wait only, so a slow trickle could hold a request for minutes.
    """
    answers: queue.SimpleQueue[ModelRecord | TuningError] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put(read())
        except TuningError as refusal:
            answers.put(refusal)
        except Exception as error:  # noqa: BLE001 - nobody else sees what happens in this thread
            answers.put(_refusal(error, reference=reference))

    threading.Thread(target=run, name="hub-look-up", daemon=True).start()
    try:
        answer = answers.get(timeout=timeout_s)
    except queue.Empty:
        raise _unknown(reference, f"the Hub did not answer within {timeout_s:g} s") from None
    if isinstance(answer, TuningError):
        raise answer from None
    return answer


def _read(reference: ModelRef, *, options: HubOptions) -> ModelRecord:
    from huggingface_hub import constants  # noqa: PLC0415 - only a process that asks loads it

    if options.is_offline or constants.is_offline_mode():
        return _read_local(reference)
    from huggingface_hub import HfApi, hf_hub_download  # noqa: PLC0415

    api = HfApi(endpoint=options.endpoint, token=options.token)
    info = api.model_info(
        reference.id,
        revision=reference.revision,
        timeout=_HTTP_SLACK * options.timeout_s,
        files_metadata=True,
    )
    sizes = {file.rfilename: file.size for file in info.siblings or []}
    _reject_large(sizes.get(_CONFIG), reference=reference)
    with tempfile.TemporaryDirectory(prefix="setpoint-hub-") as folder:
        path = hf_hub_download(
            reference.id,
            _CONFIG,
            revision=info.sha,
            cache_dir=folder,
            etag_timeout=_HTTP_SLACK * options.timeout_s,
            token=options.token,
            endpoint=options.endpoint,
        )
        config = _config(Path(path), reference=reference)
    return ModelRecord(
        id=cache_id(reference),
        config=config,
        weights_bytes=_weights_bytes(sizes),
        revision=info.sha,
    )


def _read_local(reference: ModelRef) -> ModelRecord:
    from huggingface_hub import hf_hub_download  # noqa: PLC0415

    path = hf_hub_download(
        reference.id, _CONFIG, revision=reference.revision, local_files_only=True
    )
    config = _config(Path(path), reference=reference)
    return ModelRecord(id=cache_id(reference), config=config, revision=reference.revision)


def _config(path: Path, *, reference: ModelRef) -> dict[str, Json]:
    _reject_large(path.stat().st_size, reference=reference)
    try:
        config = json.loads(path.read_bytes())
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise _invalid(reference, "its config.json is not a JSON object")
    return config


def _reject_large(size_bytes: int | None, *, reference: ModelRef) -> None:
    if size_bytes is not None and size_bytes > _LARGEST_CONFIG_BYTES:
        raise _invalid(reference, f"its config.json is larger than {_LARGEST_CONFIG_BYTES} bytes")


def _weights_bytes(sizes: dict[str, int | None]) -> int | None:
    """Return the bytes of the safetensors files that vLLM loads, None when unknown.

    Some repositories hold the same weights twice, as model*.safetensors and consolidated*.
    """
    top = {
        name: size
        for name, size in sizes.items()
        if name.endswith(".safetensors") and "/" not in name and size
    }
    total = sum(size for name, size in top.items() if name.startswith("model"))
    return total or sum(top.values()) or None


def _refusal(error: Exception, *, reference: ModelRef) -> TuningError:
    """Return what the core calls an error of the Hub's client; its own text may hold addresses."""
    from huggingface_hub import errors  # noqa: PLC0415

    match error:
        case errors.GatedRepoError():
            why = "the Hub shows it only to accounts that accepted its terms; set HF_TOKEN to one"
        case errors.LocalEntryNotFoundError() | errors.OfflineModeIsEnabled():
            why = "the look-up is offline and no local Hub cache holds it"
        case errors.RevisionNotFoundError():
            return InvalidRequest(
                f"{reference.id} has no revision {reference.revision!r} on the Hub",
                pointer="/model/revision",
            )
        case errors.RepositoryNotFoundError() | errors.DisabledRepoError():
            why = "the Hub has no such model, or it is private and HF_TOKEN does not open it"
        case errors.EntryNotFoundError():
            return _invalid(reference, "its repository has no config.json (GGUF or adapter only?)")
        case errors.HFValidationError():
            return _invalid(reference, "the Hub takes only ids like owner/name")
        case errors.HfHubHTTPError() if error.response.status_code in _REFUSED:
            why = "the Hub refused access; check HF_TOKEN"
        case errors.HfHubHTTPError():
            why = f"the Hub answered with status {error.response.status_code}"
        case _:
            why = "the Hub could not be reached"
    return _unknown(reference, why)


def _unknown(reference: ModelRef, why: str) -> UnknownModel:
    return UnknownModel(
        f"{reference.id!r} is not bundled, and {why}. {_OTHER_WAY}", pointer="/model/id"
    )


def _invalid(reference: ModelRef, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"{reference.id!r} cannot be read from the Hub: {why}. {_OTHER_WAY}", pointer="/model/id"
    )
