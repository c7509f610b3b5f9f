#!/usr/bin/env bash
# Make .venv-vllm/: what vLLM's own argument parser and config objects need on a machine without a GPU.
#
# vLLM comes as its source package, built for the device "empty": no kernels, pure Python.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
title="vllm parser"
venv="${SETPOINT_VLLM_VENV:-$root/.venv-vllm}"
lock="$here/requirements-parser.lock.txt"
vllm_version="0.33.0"
torch_version="2.13.0"
parser_dir="$venv/vllm-$vllm_version"
# shellcheck source=deploy/vllm-cpu/environment.sh
source "$root/deploy/vllm-cpu/environment.sh"

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

step requirements pip_install -r "$lock"
step vllm install_vllm
step models make_models
step check check_parser
echo "vllm parser: ready in $venv" >&2
