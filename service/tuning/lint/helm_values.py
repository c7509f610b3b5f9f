"""Helm values: vLLM's production stack, and llm-d's model service.

What the charts make of their values was read in their templates: the production stack
(vllm-project/production-stack, helm/templates/deployment-vllm-multi.yaml) and llm-d
(llm-d-incubation/llm-d-modelservice, templates/_helpers.tpl).
"""

from collections.abc import Iterator

from service.tuning.lint.container import expanded_variables, image_version
from service.tuning.lint.found import Container, FoundEngine, Reading, Remark, Word
from service.tuning.lint.manifest_words import number, variables, word_of, words_of
from service.tuning.lint.text import Text
from service.tuning.lint.yaml_tree import Mapping, Node, Scalar, find, find_text, items

_SUBCHART_LEVELS = 2
_KEYS = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxLoras": "--max-loras",
}
_SIZES = {
    "tensor": "--tensor-parallel-size",
    "data": "--data-parallel-size",
    "dataLocal": "--data-parallel-size-local",
}
_SWITCHES = {"enableLoRA": "--enable-lora", "enableTool": "--enable-auto-tool-choice"}


def find_values(document: Node, *, level: int = 0) -> Iterator[tuple[str, Mapping]]:
    """Yield the values of either chart, also where they stand under a subchart's name."""
    if not isinstance(document, Mapping):
        return
    if find(document, "servingEngineSpec", "modelSpec") is not None:
        yield "production-stack", document
    elif find(document, "modelArtifacts") is not None and _has_roles(document):
        yield "llm-d", document
    elif level < _SUBCHART_LEVELS:
        for _, value in document.entries:
            yield from find_values(value, level=level + 1)


def has_values(document: Node) -> bool:
    """Whether the document holds values of one of the charts."""
    return any(True for _ in find_values(document))


def read_values(document: Node, content: str) -> Reading:
    """Return the engines that the charts start from these values."""
    engines: list[FoundEngine] = []
    for chart, values in find_values(document):
        read = _stack_engines if chart == "production-stack" else _llm_d_engines
        engines += read(values, content)
    return Reading(engines=tuple(engines))


def _has_roles(document: Mapping) -> bool:
    return any(find(document, role, "containers") is not None for role in ("decode", "prefill"))


def _stack_engines(values: Mapping, content: str) -> Iterator[FoundEngine]:
    for model in items(values, "servingEngineSpec", "modelSpec"):
        if isinstance(model, Mapping) and find_text(model, "modelURL") is not None:
            yield _stack_engine(model, content)


def _stack_engine(model: Mapping, content: str) -> FoundEngine:
    image = f"{find_text(model, 'repository')}:{find_text(model, 'tag')}"
    config = find(model, "vllmConfig")
    has_shm = find(config, "tensorParallelSize") is not None
    gpus = find(model, "requestGPU")
    return FoundEngine(
        title=f"modelSpec {find_text(model, 'name') or ''}".strip(),
        form="items",
        span=model.span,
        words=tuple(_stack_words(model, config, content)),
        env=expanded_variables(variables(find(model, "env"), content)),
        version_text=image_version(image),
        container=Container(
            kind="production-stack model",
            image=image,
            shm_gib=float("inf") if has_shm else 64 / 1024,
            gpus=number(gpus),
            span=model.span,
            gpus_span=None if gpus is None else gpus.span,
        ),
        remarks=tuple(_fraction(gpus)),
    )


def _stack_words(model: Mapping, config: Node | None, content: str) -> Iterator[Word]:
    url = find(model, "modelURL")
    yield from _made(model, "vllm", "serve")
    if isinstance(url, Scalar):
        yield word_of(url, content)
    for key, flag in _SWITCHES.items():
        if find_text(model, key) == "true":
            yield from _made(find(model, key) or model, flag)
    if not isinstance(config, Mapping):
        return
    chunked = find(config, "enableChunkedPrefill")
    if chunked is not None:
        is_on = find_text(config, "enableChunkedPrefill") == "true"
        yield from _made(chunked, f"--{'' if is_on else 'no-'}enable-chunked-prefill")
    caching = find(config, "enablePrefixCaching")
    is_cached = find_text(config, "enablePrefixCaching") == "true"
    yield from _made(caching or config, f"--{'' if is_cached else 'no-'}enable-prefix-caching")
    yield from _keyed(config, _KEYS, content)
    yield from words_of(find(config, "extraArgs"), content) or ()


def _keyed(mapping: Mapping, keys: dict[str, str], content: str) -> Iterator[Word]:
    for key, flag in keys.items():
        value = find(mapping, key)
        if isinstance(value, Scalar) and value.value is not None:
            yield from _made(value, flag)
            yield word_of(value, content)


def _made(node: Node, *values: str) -> Iterator[Word]:
    for value in values:
        yield Word(Text.near(value, node.span.start), span=node.span)


def _fraction(gpus: Node | None) -> Iterator[Remark]:
    count = number(gpus)
    if gpus is not None and count is not None and 0 < count < 1:
        yield Remark(
            rule="CTR004",
            message=f"requestGPU: {count:g} becomes no GPU request at all: the chart takes whole"
            " numbers, so several pods may land on one GPU and profile memory at once.",
            suggestion="requestGPU: 1",
            span=gpus.span,
        )


def _llm_d_engines(values: Mapping, content: str) -> Iterator[FoundEngine]:
    for role in ("decode", "prefill"):
        if find_text(values, role, "create") == "false":
            continue
        for node in items(values, role, "containers"):
            if isinstance(node, Mapping):
                yield from _llm_d_engine(values, role, node, content)


def _llm_d_engine(values: Mapping, role: str, node: Mapping, content: str) -> Iterator[FoundEngine]:
    command = find_text(node, "modelCommand") or "imageDefault"
    words = list(words_of(find(node, "command"), content) or ())
    words += words_of(find(node, "args"), content) or ()
    if command != "custom":
        words = [*_made(node, "vllm", "serve"), *_llm_d_words(values, role, content), *words]
    from service.tuning.lint.shell import engine_of_words, nested_script, read_shell  # noqa: PLC0415

    title = f"llm-d {role}, container {find_text(node, 'name') or ''}".rstrip(", ")
    env = expanded_variables(variables(find(node, "env"), content))
    script = nested_script(words[:4])
    if script is not None:
        yield from read_shell(script.text, env=env, depth=1).engines
        return
    engine = engine_of_words(words, title=title, env=env, form="items")
    if engine is not None:
        yield engine


def _llm_d_words(values: Mapping, role: str, content: str) -> Iterator[Word]:
    model = _hub_model(values, content)
    if model is not None:
        yield model
    parallelism = find(values, role, "parallelism")
    if isinstance(parallelism, Mapping):
        yield from _keyed(parallelism, _SIZES, content)


def _hub_model(values: Mapping, content: str) -> Word | None:
    """Return the model of `hf://owner/name`, else the name that it is served under."""
    uri, name = find(values, "modelArtifacts", "uri"), find(values, "modelArtifacts", "name")
    if isinstance(uri, Scalar) and uri.text.value.startswith("hf://"):
        word = word_of(uri, content)
        return Word(word.text.cut(len("hf://")), word.unresolved, span=word.span)
    return word_of(name, content) if isinstance(name, Scalar) else None
