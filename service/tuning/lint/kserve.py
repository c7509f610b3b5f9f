"""KServe without a command of its own: model formats, and LLMInferenceService.

Key names from kserve.github.io, Hugging Face runtime (flags of its own before vLLM's) and
LLMInferenceService configuration.
"""

from collections.abc import Iterator, Sequence

from service.tuning.lint.found import Container, FoundEngine, Word
from service.tuning.lint.kubernetes import gpu_request
from service.tuning.lint.manifest_words import split_words, variables, word_of, words_of
from service.tuning.lint.text import Text
from service.tuning.lint.yaml_tree import Mapping, Node, Scalar, find, find_text, items

_RUNTIME_FLAGS = frozenset(
    {
        "--model_name",
        "--model_id",
        "--model_dir",
        "--model_revision",
        "--backend",
        "--task",
        "--http_port",
        "--grpc_port",
        "--workers",
        "--enable_docs_url",
        "--return_token_type_ids",
        "--predictor_protocol",
        "--disable_lower_case",
        "--disable_special_tokens",
    }
)
_FORMATS = frozenset({"huggingface", "vllm", "vLLM"})
_PARALLELISM = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
    "dataLocal": "--data-parallel-size-local",
}
_MORE = "VLLM_ADDITIONAL_ARGS"


def read_model_format(document: Node, content: str) -> Iterator[FoundEngine]:
    """Yield the engine of an InferenceService that names a model format instead of a container."""
    model = find(document, "spec", "predictor", "model")
    if not isinstance(model, Mapping):
        return
    if find_text(model, "modelFormat", "name") not in _FORMATS:
        return
    arguments = words_of(find(model, "args"), content) or ()
    name, kept = _split_runtime_flags(arguments)
    uri = find(model, "storageUri")
    if name is None and isinstance(uri, Scalar) and uri.text.value.startswith("hf://"):
        name = _cut(word_of(uri, content))
    gpus, gpus_span = gpu_request(model)
    yield FoundEngine(
        title=f"InferenceService {find_text(document, 'metadata', 'name') or ''}".strip(),
        form="items",
        span=model.span,
        words=(*_made(model, "vllm", "serve"), *([name] if name else []), *kept),
        model=name or Word(Text.near("storageUri", model.span.start), "storageUri"),
        env=variables(find(model, "env"), content),
        container=Container(
            kind="InferenceService", gpus=gpus, span=model.span, gpus_span=gpus_span
        ),
    )


def _split_runtime_flags(arguments: Sequence[Word]) -> tuple[Word | None, list[Word]]:
    """Return the model's id and vLLM's arguments; the runtime's own flags are left out."""
    model: Word | None = None
    kept: list[Word] = []
    index = 0
    while index < len(arguments):
        word = arguments[index]
        flag, equals, _ = word.value.partition("=")
        name = flag.replace("-", "_").replace("__", "--", 1)
        if name not in _RUNTIME_FLAGS:
            kept.append(word)
        elif equals:
            model = _cut(word, len(flag) + 1) if name == "--model_id" else model
        elif index + 1 < len(arguments) and not arguments[index + 1].value.startswith("-"):
            index += 1
            model = arguments[index] if name == "--model_id" else model
        index += 1
    return model, kept


def read_llm_service(document: Node, content: str) -> Iterator[FoundEngine]:
    """Yield the engines of an LLMInferenceService: decode, and prefill where it is apart."""
    title = f"LLMInferenceService {find_text(document, 'metadata', 'name') or ''}".strip()
    for path, role in ((("spec",), ""), (("spec", "prefill"), ", prefill")):
        spec = find(document, *path)
        if isinstance(spec, Mapping) and (role == "" or find(spec, "template") is not None):
            yield _llm_engine(document, spec, content, title=title + role)


def _llm_engine(document: Node, spec: Mapping, content: str, *, title: str) -> FoundEngine:
    containers = [n for n in items(spec, "template", "containers") if isinstance(n, Mapping)]
    main = next((n for n in containers if find_text(n, "name") in {"main", None}), None)
    env = () if main is None else variables(find(main, "env"), content)
    gpus, gpus_span = (None, None) if main is None else gpu_request(main)
    model = _model(document, content)
    return FoundEngine(
        title=title,
        form="items",
        span=spec.span,
        words=(
            *_made(spec, "vllm", "serve"),
            *([model] if model else []),
            *_parallelism(spec, content),
            *(_arguments(main, content) if main is not None else ()),
        ),
        model=model,
        env=env,
        container=Container(
            kind="LLMInferenceService",
            gpus=gpus,
            span=(main or spec).span,
            gpus_span=gpus_span,
        ),
    )


def _arguments(main: Mapping, content: str) -> Iterator[Word]:
    command = words_of(find(main, "command"), content) or ()
    starts = [word.value for word in command[:2]] == ["vllm", "serve"]
    yield from command[2:] if starts else ()
    yield from words_of(find(main, "args"), content) or ()
    for item in items(main, "env"):
        value = find(item, "value")
        if find_text(item, "name") == _MORE and isinstance(value, Scalar):
            yield from split_words(value.text, content)


def _parallelism(spec: Mapping, content: str) -> Iterator[Word]:
    parallelism = find(spec, "parallelism")
    for key, flag in _PARALLELISM.items():
        value = find(parallelism, key)
        if isinstance(value, Scalar):
            yield from _made(value, flag)
            yield word_of(value, content)
    if find_text(parallelism, "expert") == "true":
        yield from _made(find(parallelism, "expert") or spec, "--enable-expert-parallel")


def _model(document: Node, content: str) -> Word | None:
    uri, name = find(document, "spec", "model", "uri"), find(document, "spec", "model", "name")
    if isinstance(uri, Scalar) and uri.text.value.startswith("hf://"):
        return _cut(word_of(uri, content))
    return word_of(name, content) if isinstance(name, Scalar) else None


def _cut(word: Word, length: int = len("hf://")) -> Word:
    return Word(word.text.cut(length), word.unresolved, span=word.span)


def _made(node: Node, *values: str) -> Iterator[Word]:
    for value in values:
        yield Word(Text.near(value, node.span.start), span=node.span)
