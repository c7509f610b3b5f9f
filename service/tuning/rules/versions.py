"""Rules of releases: settings that one does not know, ignores, or takes other values for."""

from collections.abc import Iterator, Mapping

import msgspec

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.accepted_values import value_obstacle
from service.tuning.engine.facts import is_known, refusal, setting_history
from service.tuning.engine.platform import model_runner
from service.tuning.engine.versions import EngineVersion
from service.tuning.models.spec import ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    number,
    thread,
    vllm,
    with_model,
)
from service.tuning.rules.domains import has_latent_attention
from service.tuning.rules.package_data import holds_for, read_rules_data

_CHECKED_ELSEWHERE = frozenset(
    {"kv_cache_dtype", "quantization", "block_size", "dtype", "scheduling_policy", "max_lora_rank"}
)
"""Settings whose values have a rule of their own, with a better answer."""
_EITHER_SPELLING = "0.33.0"
"""From here on every enable_x has a disable_x, and the other way round."""


def given_settings(config: EngineConfig) -> dict[str, Json]:
    """Return the settings that are set, by name."""
    settings: dict[str, Json] = msgspec.to_builtins(config)
    return settings


def _is_other_spelling(name: str, context: RuleContext) -> bool:
    if not context.version.since(_EITHER_SPELLING) or not name.startswith("disable_"):
        return False
    return is_known(f"enable_{name.removeprefix('disable_')}", context.version)


def _refused(context: RuleContext, *, is_new: bool) -> Iterator[Remark]:
    for name in given_settings(context.given):
        message = refusal(name, context.version)
        if message is None or _is_other_spelling(name, context):
            continue
        history = setting_history(name)
        introduced = history.introduced if history is not None else None
        comes_later = introduced is not None and not context.version.since(introduced)
        if comes_later == is_new:
            replaced = history.replaced_by if history is not None else ()
            usable = [other for other in replaced if is_known(other, context.version)]
            yield Remark(
                setting=name,
                message=message if message.endswith(".") else f"{message}.",
                suggestion=f"Use {' or '.join(usable)}." if usable else f"Leave {name} out.",
            )


def _gone(context: RuleContext) -> Iterator[Remark]:
    return _refused(context, is_new=False)


def _not_yet(context: RuleContext) -> Iterator[Remark]:
    return _refused(context, is_new=True)


def _no_effect(context: RuleContext) -> Iterator[Remark]:
    for entry in read_rules_data("no_effect")["settings"]:
        name = entry["setting"]
        if getattr(context.given, name) is not None and holds_for(entry, context.version):
            yield Remark(
                setting=name,
                message=f"{name} does nothing useful in vLLM {context.version.text}:"
                f" {entry['why']}.",
                suggestion=entry["instead"],
            )


def _other_spelling(context: RuleContext) -> Iterator[Remark]:
    for name in given_settings(context.given):
        if refusal(name, context.version) is not None and _is_other_spelling(name, context):
            yield Remark(
                setting=name,
                message=f"{name} is an old spelling that only this release takes again.",
                suggestion=f"Use enable_{name.removeprefix('disable_')} and its negative form.",
            )


def _foreign_value(context: RuleContext) -> Iterator[Remark]:
    given = given_settings(context.given)
    for name, value in given.items():
        if name in _CHECKED_ELSEWHERE or not is_known(name, context.version):
            continue
        obstacle = value_obstacle(name, value, version=context.version, given=given)
        if obstacle is not None:
            yield Remark(
                setting=name,
                message=f"{obstacle}.",
                suggestion="Choose such a value, or leave the setting out.",
            )


def _known_issues(context: RuleContext) -> Iterator[Remark]:
    for issue in read_rules_data("known_issues")["issues"]:
        if holds_for(issue, context.version) and _applies(issue, context):
            yield Remark(
                severity=issue.get("severity"),
                message=f"Known trouble with vLLM {context.version.text}: {issue['what']}"
                f" (vllm-project/vllm {issue['where']})",
                suggestion=issue["instead"],
            )


def _applies(issue: Mapping[str, Json], context: RuleContext) -> bool:
    """Whether all conditions of a known issue are met; unknown facts meet none."""
    return all(
        condition(issue, context)
        for condition in (_same_model, _same_gpu, _same_layers, _same_runner)
    )


def _same_model(issue: Mapping[str, Json], context: RuleContext) -> bool:
    name = issue.get("model")
    return name is None or (context.spec is not None and name.lower() in context.spec.id.lower())


def _same_gpu(issue: Mapping[str, Json], context: RuleContext) -> bool:
    major, vendor = issue.get("cc_major"), issue.get("vendor")
    if major is None and vendor is None:
        return True
    if context.node is None:
        return False
    capability = context.node.gpu.compute_capability
    has_major = major is None or (capability is not None and capability[0] == major)
    return has_major and vendor in {None, context.node.gpu.vendor}


def _same_layers(issue: Mapping[str, Json], context: RuleContext) -> bool:
    wants_latent = issue.get("latent", False)
    return not wants_latent or (context.spec is not None and has_latent_attention(context.spec))


def _same_runner(issue: Mapping[str, Json], context: RuleContext) -> bool:
    if issue.get("runner") is None:
        return True
    share = number(context.effective.gpu_memory_utilization) or 0.0
    if context.effective.enforce_eager is True or share < issue.get("min_utilization", 0.0):
        return False
    return context.spec is not None and _runner(context, context.spec) == issue["runner"]


def _runner(context: RuleContext, spec: ModelSpec) -> str | None:
    if context.node is None:
        return None
    gpu = context.node.gpu
    return model_runner(context.effective, spec=spec, gpu=gpu, version=context.version)


def _old_release(context: RuleContext) -> Iterator[Remark]:
    yield Remark(
        message=f"vLLM {context.version.text} is older than 0.8 and runs the first engine: the"
        " figures here are rough, and many defaults changed since.",
        suggestion="Plan an upgrade; 0.20 and newer differ most in what memory they count.",
    )


def _architecture(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    data, version = read_rules_data("architectures"), context.version
    for entry in data["architectures"]:
        if entry["name"] == spec.architecture and not version.since(entry["since"]):
            yield _unlisted(entry, version)
    for entry in data["removed"]:
        if entry["name"] != spec.architecture:
            continue
        if version.release[:2] > EngineVersion.of(entry["last"]).release[:2]:
            yield Remark(
                message=f"vLLM {version.text} refuses {entry['name']}: its code was removed after"
                f" {entry['last']}.",
                suggestion=f"Use vLLM {entry['last']}, the last release with it.",
            )


def serving_release(spec: ModelSpec, version: EngineVersion) -> str | None:
    """Return the release nearest to this one that has the model's code; None where this has it."""
    data = read_rules_data("architectures")
    named = (entry for entry in data["architectures"] if entry["name"] == spec.architecture)
    since = next((entry["since"] for entry in named if not version.since(entry["since"])), None)
    removed = (entry for entry in data["removed"] if entry["name"] == spec.architecture)
    last = next((entry["last"] for entry in removed), None)
    if last is not None and version.release[:2] > EngineVersion.of(last).release[:2]:
        return str(last)
    return None if since is None else str(since)


def _unlisted(entry: Mapping[str, Json], version: EngineVersion) -> Remark:
    is_read = EngineVersion.of(entry["absent_in"]).since(version.text)
    falls_back = entry.get("falls_back", False)
    way = "refuses"
    if not is_read:
        way = "may not have code for"
    elif falls_back:
        way = "at best runs, far slower and through Transformers,"
    return Remark(
        severity="warning" if falls_back or not is_read else None,
        message=f"vLLM {version.text} {way} {entry['name']}: {entry['absent_in']} lists no code for"
        f" it, {entry['since']} does.",
        suggestion=f"Use vLLM {entry['since']} or newer.",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="VER001",
        title="The release no longer has the setting",
        help="Removed settings stop the server with unrecognized arguments. Most of them have a"
        " successor or became the default.",
        settings=(),
        severity="error",
        source=(
            vllm("engine/arg_utils.py of 62 releases, 0.2.7 to 0.33.0"),
            thread("PR 259", repository="runpod-workers/worker-vllm"),
        ),
        check=_gone,
    ),
    Rule(
        id="VER002",
        title="The release does not have the setting yet",
        help="A setting of a newer release stops an older one.",
        settings=(),
        severity="error",
        source=(vllm("engine/arg_utils.py of 62 releases, 0.2.7 to 0.33.0"),),
        check=_not_yet,
    ),
    Rule(
        id="VER003",
        title="The setting has no effect in this release",
        help="It is still parsed, then ignored; or it is announced to go.",
        settings=(),
        severity="warning",
        source=(vllm("engine/arg_utils.py of 62 releases, 0.2.7 to 0.33.0"),),
        check=_no_effect,
    ),
    Rule(
        id="VER004",
        title="An old spelling that works again",
        help="0.33.0 takes disable_x for every enable_x. Releases before it refuse that.",
        settings=(),
        severity="note",
        since=_EITHER_SPELLING,
        source=(vllm("utils/argparse_utils.py"),),
        check=_other_spelling,
    ),
    Rule(
        id="VER005",
        title="The value is one that the release takes",
        help="Each setting takes values of one kind; some have bounds or a closed list. Anything"
        " else stops the server.",
        settings=(),
        severity="error",
        source=(vllm("config and engine/arg_utils.py: kinds, bounds and closed lists of values"),),
        check=_foreign_value,
    ),
    Rule(
        id="VER006",
        title="Known trouble of the release",
        help="Reports of single releases that concern this model, GPU or runner.",
        settings=(),
        severity="warning",
        source=(thread("the issue named in the message"),),
        check=_known_issues,
    ),
    Rule(
        id="VER007",
        title="A release before 0.8",
        help="The first engine had other defaults, other memory accounting and other settings.",
        settings=(),
        severity="note",
        until="0.8.0",
        source=(vllm("0.8.0 made the V1 engine the default", version="0.8.0"),),
        check=_old_release,
    ),
    Rule(
        id="VER008",
        title="The release knows the model's architecture",
        help="A model is served by code of its own, which came with some release. Older ones stop"
        " with architectures not supported, or fall back to slow code of another library. Code that"
        " few used was removed again.",
        settings=("model",),
        severity="error",
        source=(
            vllm("model_executor/models/registry.py of 31 releases, 0.8.2 to 0.33.0"),
            thread("issue 22231"),
        ),
        check=with_model(_architecture),
    ),
)
