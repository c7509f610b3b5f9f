"""What the gate finds in files, described here so that each id has its page.

Its readers report these, since they know words and places; there is nothing left for a check of
the finished configuration.
"""

from api_schemas.explanation import Severity, Source
from service.tuning.rules.base import Rule, says_nothing, thread, vllm

_GRAMMAR = vllm("utils/argparse_utils.py, asked line by line")
_READER = Source(title="Readers of the gate", where="service/tuning/lint")
_DOCS = Source(title="vLLM documentation", where="docs.vllm.ai, Using Kubernetes and Using Docker")
_POLICY = Source(title="The policy that was given", where="setpoint.yaml")


def _rule(rule_id: str, severity: Severity, title: str, text: str, *source: Source) -> Rule:
    return Rule(
        id=rule_id,
        title=title,
        help=text,
        settings=(),
        severity=severity,
        source=source,
        check=says_nothing,
    )


RULES: tuple[Rule, ...] = (
    _rule(
        "CFG001",
        "warning",
        "false in vLLM's configuration file",
        "The loader drops keys that are false, so the setting keeps its default. The negative"
        " form set to true works in every release.",
        vllm("utils/argparse_utils.py: load_config_file"),
    ),
    _rule(
        "CFG002",
        "warning",
        "A configuration file that vLLM does not read",
        "The loader acts on --config FILE alone; --config=FILE is accepted and nothing is read.",
        vllm("utils/argparse_utils.py: parse_args"),
    ),
    _rule(
        "CHK001",
        "note",
        "The model is not known",
        "Without its config nothing can be said about memory. Give it in the request, or"
        " register it with the service.",
        _READER,
    ),
    _rule(
        "CHK002",
        "note",
        "The release is not known",
        "No image tag and no request says which vLLM runs: the newest known is assumed.",
        _READER,
    ),
    _rule(
        "CHK003",
        "warning",
        "No engine was found",
        "None of the files starts vLLM in a form that is read here, so nothing was checked.",
        _READER,
    ),
    _rule(
        "CLI001",
        "error",
        "A flag that vLLM never had",
        "Unknown flags end the server with unrecognized arguments.",
        _GRAMMAR,
    ),
    _rule(
        "CLI002",
        "error",
        "A boolean flag with a value",
        "Boolean flags take none: the flag alone switches on, its negative form switches off.",
        _GRAMMAR,
    ),
    _rule("CLI003", "error", "A flag without its value", "The flag needs a value.", _GRAMMAR),
    _rule(
        "CLI004",
        "error",
        "A value that cannot be read",
        "The parser expects another kind of value; sizes take k and m (decimal), K and M (binary).",
        _GRAMMAR,
    ),
    _rule(
        "CLI005",
        "error",
        "A value outside the closed list",
        "The parser knows a fixed list of values for this flag.",
        _GRAMMAR,
    ),
    _rule(
        "CLI006",
        "error",
        "An ambiguous abbreviation",
        "Several flags begin like this, so the parser refuses to choose.",
        _GRAMMAR,
    ),
    _rule(
        "CLI007",
        "warning",
        "An abbreviated flag",
        "The parser takes unique beginnings. A new flag of the next release can make it ambiguous.",
        _GRAMMAR,
    ),
    _rule(
        "CLI008",
        "warning",
        "A setting given twice",
        "The last one wins without an error.",
        _GRAMMAR,
    ),
    _rule(
        "CLI009",
        "error",
        "An argument that belongs to no flag",
        "The parser refuses arguments left over.",
        _GRAMMAR,
    ),
    _rule(
        "CLI010",
        "note",
        "No model is named",
        "vLLM then serves its small default model.",
        _GRAMMAR,
    ),
    _rule(
        "CLI011",
        "error",
        "A key that the JSON object does not have",
        "Objects such as compilation_config refuse keys that the release does not know.",
        vllm("config: fields of the classes behind JSON settings"),
    ),
    _rule(
        "CTR001",
        "warning",
        "Ranks need shared memory",
        "Several ranks exchange data through /dev/shm. Containers get 64 MiB unless told"
        " otherwise, which ends in errors of NCCL.",
        _DOCS,
    ),
    _rule(
        "CTR002",
        "error",
        "Fewer GPUs than ranks",
        "Every rank needs a GPU of its own inside the container.",
        vllm("v1/executor: one worker per rank"),
    ),
    _rule(
        "CTR003",
        "warning",
        "GPUs that no rank uses",
        "The container holds GPUs that the parallel sizes leave idle.",
        vllm("v1/executor: one worker per rank"),
    ),
    _rule(
        "CTR004",
        "warning",
        "A fraction of a GPU",
        "Kubernetes counts whole GPUs. The chart rounds a fraction down to none, so two pods may"
        " land on one GPU.",
        thread("helm/templates", repository="vllm-project/production-stack"),
    ),
    _rule(
        "CTR005",
        "note",
        "A liveness probe without a start-up probe",
        "Large models load for many minutes; a fixed delay kills them or reacts too late.",
        _DOCS,
    ),
    _rule(
        "CTR006",
        "error",
        "A Service named vllm",
        "Service links set VLLM_PORT and others, some of which vLLM reads itself.",
        vllm("envs.py: VLLM_PORT"),
    ),
    _rule(
        "CTR007",
        "warning",
        "An image without a fixed release",
        "latest and nightly change under a running deployment, and with them flags and defaults.",
        _READER,
    ),
    _rule(
        "FIL001",
        "error",
        "The file cannot be read",
        "It is malformed or goes beyond the limits of size, depth and aliases.",
        _READER,
    ),
    _rule(
        "POL001",
        "warning",
        "A waiver has ended",
        "After its last day a waiver covers nothing.",
        _POLICY,
    ),
    _rule(
        "POL002",
        "error",
        "A ceiling of the policy is crossed",
        "More GPUs, or a release outside the allowed ones.",
        _POLICY,
    ),
    _rule(
        "POL003",
        "error",
        "Worse than the baseline",
        "The predicted figure is worse, and so is its whole band.",
        _POLICY,
    ),
    _rule(
        "SLO001",
        "error",
        "A target is missed",
        "The whole band of the prediction lies beyond the limit.",
        Source(title="Prediction", where="service/tuning/verdicts.py"),
    ),
    _rule(
        "SLO002",
        "warning",
        "A target may be missed",
        "The limit lies inside the band of the prediction.",
        Source(title="Prediction", where="service/tuning/verdicts.py"),
    ),
    _rule(
        "TPL001",
        "note",
        "A value that only a run can tell",
        "It comes from a variable, a substitution or a template, so it was not checked.",
        _READER,
    ),
    _rule(
        "TPL002",
        "warning",
        "A template with branches",
        "Render it first and check the result: what it becomes cannot be told from here.",
        _READER,
    ),
    _rule(
        "UPG001",
        "warning",
        "A default changes with the upgrade",
        "The setting is left to vLLM, and the newer release chooses otherwise.",
        vllm("config and engine/arg_utils.py of both releases"),
    ),
    _rule(
        "UPG002",
        "note",
        "Settled by the upgrade",
        "The older release refuses it, the newer one does not.",
        vllm("engine/arg_utils.py of 62 releases, 0.2.7 to 0.33.0"),
    ),
)
