#!/usr/bin/env bash
# The work of action.yml: check, annotate the lines, write the step's summary and the result files.
set -euo pipefail

results="${SETPOINT_RESULTS:-setpoint-results}"
mkdir -p "$results"

arguments=(
  --format github
  --report "json=$results/setpoint.json"
  --report "sarif=$results/setpoint.sarif"
  --report "junit=$results/setpoint.xml"
  --report "markdown=$results/setpoint.md"
)
option() { # option NAME VALUE: add it where there is a value
  if [[ -n "$2" ]]; then arguments+=("$1" "$2"); fi
}
option --gpu "${SETPOINT_GPU:-}"
option --gpus-per-node "${SETPOINT_GPUS_PER_NODE:-}"
option --model "${SETPOINT_MODEL:-}"
option --preset "${SETPOINT_PRESET:-}"
option --engine-version "${SETPOINT_ENGINE_VERSION:-}"
option --from "${SETPOINT_FROM:-}"
option --policy "${SETPOINT_POLICY:-}"
option --baseline "${SETPOINT_BASELINE:-}"
option --server "${SETPOINT_SERVER:-}"
if [[ "${SETPOINT_REPORT_ONLY:-false}" == true ]]; then arguments+=(--report-only); fi

read -r -d '' -a paths <<<"${SETPOINT_PATHS:-.}" || true
code=0
setpoint check "${arguments[@]}" -- "${paths[@]}" || code=$?

if [[ -f "$results/setpoint.md" ]]; then
  cat "$results/setpoint.md" >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
  {
    echo "verdict=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["verdict"])' \
      <"$results/setpoint.json")"
    echo "sarif=$results/setpoint.sarif"
  } >>"${GITHUB_OUTPUT:-/dev/null}"
fi
exit "$code"
