#!/usr/bin/env bash
# Run a script of this folder inside the vLLM environment: ask_parser.sh [SCRIPT.py [ARGUMENT...]]
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
venv="${SETPOINT_VLLM_VENV:-$here/../../.venv-vllm}"
script="${1:-ask_parser.py}"
shift || true
# The platform cannot be detected without a device; the hub must never be asked.
export VLLM_TARGET_DEVICE=cpu VLLM_LOGGING_LEVEL=ERROR VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
export PYTHONPATH="$venv/vllm-0.33.0" PYTHONWARNINGS=ignore
exec "$venv/bin/python" "$here/$script" "$@"
