"""serve.sh and the environment file."""

import shlex

from api_schemas.recommendation import RenderedFile
from service.tuning.engine.argv import settings_argv
from service.tuning.errors import InvalidRequest
from service.tuning.render.rendering import Rendering
from service.tuning.render.text import commented, header

_RPC_PORT = 13345
_MP_NODES_SINCE = "0.11.1"
"""`--nnodes` came with it; before, several nodes needed a Ray cluster."""


def serve_script(rendering: Rendering) -> RenderedFile:
    """Return serve.sh: bash that replaces itself with vLLM.

    Raises:
        InvalidRequest: data parallelism whose ranks span several nodes.
    """
    lines = ["#!/usr/bin/env bash", commented(header(rendering)).rstrip(), *_usage(rendering)]
    literal = [*rendering.plain_env.values(), *rendering.argv]
    if any("$" in text or "`" in text for text in literal):
        lines.append("# shellcheck disable=SC2016  # dollars and backticks are meant literally")
    lines += ["set -euo pipefail", ""]
    exports = [f"export {n}={shlex.quote(v)}" for n, v in rendering.plain_env.items()]
    lines += [*exports, ""] if exports else []
    lines += [*_node_check(rendering)]
    lines += ["arguments=(", *_arguments(rendering), ")"]
    lines += _distribution(rendering)
    lines += ["", 'exec vllm "${arguments[@]}" "$@"']
    return RenderedFile(
        path="serve.sh", media_type="application/x-sh", content="\n".join(lines) + "\n"
    )


def env_file(rendering: Rendering) -> RenderedFile:
    """Return vllm.env for `docker run --env-file`: NAME=value, one a line, taken literally."""
    notes = [
        *header(rendering),
        "For docker run --env-file. Secrets stay out: pass them from your secret store.",
        *(f"{name}=" for name in rendering.secret_names),
    ]
    values = "".join(f"{name}={value}\n" for name, value in rendering.plain_env.items())
    return RenderedFile(path="vllm.env", media_type="text/plain", content=commented(notes) + values)


def _usage(rendering: Rendering) -> list[str]:
    if rendering.nodes_per_replica == 1:
        return []
    if _needs_ray(rendering):
        return ["# Start it on the head of a Ray cluster that holds all nodes."]
    last = rendering.nodes_per_replica - 1
    return [
        f"# Start it on every node: NODE_RANK=0..{last} MASTER_ADDR=address-of-node-0 ./serve.sh"
    ]


def _arguments(rendering: Rendering) -> list[str]:
    """Return one line per flag with its values."""
    flags = settings_argv(rendering.settings, rendering.version)
    lines = [f"serve {shlex.quote(rendering.argv[2])}"]
    for argument in flags:
        if argument.startswith("--"):
            lines.append(_quoted_flag(argument))
        else:
            lines[-1] += f" {shlex.quote(argument)}"
    return [f"  {line}" for line in lines]


def _quoted_flag(argument: str) -> str:
    flag, equals, value = argument.partition("=")
    return f"{flag}={shlex.quote(value)}" if equals else flag


def _needs_ray(rendering: Rendering) -> bool:
    return not rendering.version.since(_MP_NODES_SINCE) and _data_parallel(rendering) == 1


def _data_parallel(rendering: Rendering) -> int:
    return rendering.config.data_parallel_size or 1


def _node_check(rendering: Rendering) -> list[str]:
    if rendering.nodes_per_replica == 1 or _needs_ray(rendering):
        return []
    return [
        ': "${NODE_RANK:?which node this is, from 0}" "${MASTER_ADDR:?address of node 0}"',
        "",
    ]


def _distribution(rendering: Rendering) -> list[str]:
    """Return the lines that spread one server over several nodes.

    Sources: docs.vllm.ai, Parallelism and Scaling (nnodes, headless) and Data Parallel Deployment.
    """
    if rendering.nodes_per_replica == 1:
        return []
    if _needs_ray(rendering):
        return ["arguments+=(--distributed-executor-backend ray)"]
    headless = "if ((NODE_RANK > 0)); then arguments+=(--headless); fi"
    if _data_parallel(rendering) == 1:
        nodes = rendering.nodes_per_replica
        return [
            f'arguments+=(--nnodes {nodes} --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR")',
            headless,
        ]
    local = _local_ranks(rendering)
    return [
        f"arguments+=(--data-parallel-size-local {local}",
        '  --data-parallel-address "$MASTER_ADDR"',
        f"  --data-parallel-rpc-port {_RPC_PORT})",
        "if ((NODE_RANK > 0)); then",
        f"  arguments+=(--headless --data-parallel-start-rank $((NODE_RANK * {local})))",
        "fi",
    ]


def _local_ranks(rendering: Rendering) -> int:
    """Return the data-parallel ranks per node."""
    ranks = _data_parallel(rendering)
    gpus_per_rank = rendering.gpus_per_replica // ranks
    local = rendering.node.gpus_per_node // gpus_per_rank
    if local == 0 or ranks % local or not rendering.version.since("0.9.0"):
        raise InvalidRequest(
            f"{ranks} data-parallel ranks of {gpus_per_rank} GPUs do not spread evenly over nodes"
            f" of {rendering.node.gpus_per_node} GPUs with vLLM {rendering.version.text}",
            pointer="/engine/config/data_parallel_size",
        )
    return local
