#!/usr/bin/env bash
# Make .venv-vllm/: what vLLM's own argument parser and config objects need on a machine without a GPU.
#
# vLLM comes as its source package, built for the device "empty": no kernels, pure Python.
# Safe to run again: every finished step leaves a stamp, and the last one ends the script at once.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
venv="${SETPOINT_VLLM_VENV:-$root/.venv-vllm}"
lock="$here/requirements-parser.lock.txt"
vllm_version="0.33.0"
torch_version="2.13.0"
python="$venv/bin/python"
parser_dir="$venv/vllm-$vllm_version"
stamps="$venv/stamps"
key="$({ echo "$vllm_version $torch_version"; cat "$lock"; } | sha256sum | cut -c1-16)"

step() { # step NAME COMMAND...: run once per set of versions
  local name="$1"
  shift
  [[ -e "$stamps/$name.$key" ]] && return 0
  echo "vllm parser: $name" >&2
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

install_torch() { # the CPU build where pip finds it, else the ordinary one: the parser runs on both
  pip_install "torch==$torch_version+cpu" 2>/dev/null || pip_install "torch==$torch_version"
}

install_vllm() {
  local scratch
  scratch="$(mktemp -d "$venv/build.XXXXXX")"
  TMPDIR="$scratch" VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE="$vllm_version" \
    pip_install --no-binary vllm --no-build-isolation --target "$scratch/vllm" "vllm==$vllm_version"
  rm -rf "$parser_dir"
  mv "$scratch/vllm" "$parser_dir"
  rm -rf "$scratch"
}

make_models() {
  "$here/ask_parser.sh" make_models.py "$venv/models"
}

check_parser() { # one command line that vLLM takes, one that it refuses
  local answers
  answers="$(printf '%s\n' \
    '{"argv": ["serve", "m", "--max-num-seqs", "64"]}' \
    '{"argv": ["serve", "m", "--swap-space", "4"]}' |
    "$here/ask_parser.sh" 2>/dev/null | cut -d, -f1 | tr -d ' \n')"
  [[ "$answers" == '{"stage":"accepted"{"stage":"parser"' ]] || {
    echo "vllm parser: unexpected answers: $answers" >&2
    return 1
  }
}

mkdir -p "$stamps"
exec 9>"$venv/lock"
flock 9 # two runs at once would break the environment
step venv make_venv
step torch install_torch
step requirements pip_install -r "$lock"
step vllm install_vllm
step models make_models
step check check_parser
echo "vllm parser: ready in $venv" >&2
