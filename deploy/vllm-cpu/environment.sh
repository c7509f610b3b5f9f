# Steps that make an environment with some vLLM in it; sourced, with these set by the script:
# title, venv, lock, vllm_version, torch_version.
#
# Safe to run again: every finished step leaves a stamp, and the last one ends the script at once.
# shellcheck shell=bash
: "${title:?}" "${venv:?}" "${lock:?}" "${vllm_version:?}" "${torch_version:?}"

python="$venv/bin/python"
stamps="$venv/stamps"
key="$({ echo "$vllm_version $torch_version"; cat "$lock"; } | sha256sum | cut -c1-16)"

step() { # step NAME COMMAND...: run once per set of versions
  local name="$1"
  shift
  [[ -e "$stamps/$name.$key" ]] && return 0
  echo "$title: $name" >&2
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

install_torch() { # the CPU build where pip finds it, else the ordinary one: vLLM runs on both
  pip_install "torch==$torch_version+cpu" 2>/dev/null || pip_install "torch==$torch_version"
}

mkdir -p "$stamps"
exec 9>"$venv/lock"
flock 9 # two runs at once would break the environment
step venv make_venv
step torch install_torch
