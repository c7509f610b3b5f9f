// Proof on real hardware: start a validation, follow it, and see predicted against measured.
import { useEffect, useState } from "preact/hooks";
import { ApiError, cancelValidation, followValidation, getValidation, listWorkers, startValidation } from "./api";
import { ErrorBar, MeasuredChart, VERDICTS } from "./charts";
import { ago, arrivals, count, duration, figure, gib, METRICS, moment, quantile, value, words } from "./format";
import { useLoaded } from "./hooks";
import { Card, Copy, Failure, Pill, type Tone, Waiting } from "./parts";
import { ConfigList } from "./result";
import type { LatencyName, LoadPoint, Recommendation, StartupFigures, Validation } from "./types";

const MODES: [string, string, string][] = [
  ["boot", "Start", "Does it start, and is the memory as predicted?"],
  ["quick", "Quick", "Start, then one load point."],
  ["knee", "Knee", "Raise the load until it gives way."],
  ["compare", "Compare", "Against vLLM's defaults, under the same load."],
  ["soak", "Soak", "Hold the load for the whole time."],
];
const TERMINAL = ["succeeded", "failed", "cancelled", "timed_out"];
const STAGES = ["queued", "leasing", "starting", "warming_up", "measuring"];
const WORDS: Record<string, string> = {
  queued: "Queued",
  leasing: "Waiting for devices",
  starting: "Starting vLLM",
  warming_up: "Warming up",
  measuring: "Measuring",
  succeeded: "Finished",
  failed: "Failed",
  cancelled: "Cancelled",
  timed_out: "Timed out",
};

function toneOf(status: string, verdict: string | null): Tone {
  if (verdict === "pass") return "good";
  if (verdict === "fail" || status === "failed" || status === "timed_out") return "bad";
  return verdict === "inconclusive" ? "warn" : "info";
}

const VERDICT_WORDS: Record<string, string> = { pass: "Passed", fail: "Failed", inconclusive: "Inconclusive" };

function outcomeWord({ status, verdict }: { status: string; verdict: string | null }): string {
  return (verdict && VERDICT_WORDS[verdict]) || WORDS[status] || status;
}

/** A refusal in words that say what to do about it. */
function Refused({ error }: { error: Error }) {
  const code = error instanceof ApiError ? error.problem : null;
  if (code?.status === 404)
    return (
      <div class="alert warn" role="alert">
        <strong>This service cannot start validations</strong>
        <p>Its version offers no measurements on real hardware yet. The predictions above stand on their own.</p>
      </div>
    );
  if (code?.code === "no-worker")
    return (
      <div class="alert warn" role="alert">
        <strong>No connected worker has this hardware</strong>
        <p>{error.message}</p>
        <p>
          See <a href="#/workers">workers</a>, or tick “Wait for a worker” and start again.
        </p>
      </div>
    );
  return <Failure error={error} />;
}

function StartForm({ record, onStarted }: { record: Recommendation; onStarted: (id: string) => void }) {
  const workers = useLoaded(listWorkers, "workers");
  const [mode, setMode] = useState("quick");
  const [minutes, setMinutes] = useState("10");
  const [node, setNode] = useState("");
  const [path, setPath] = useState("");
  const [wait, setWait] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const start = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const made = await startValidation(record.id, {
        mode,
        max_minutes: Number(minutes),
        ...(node && { queue: { node } }),
        ...(path.trim() && { model_path: path.trim() }),
        ...(wait && { when_no_worker: "wait" }),
      });
      onStarted(made.id);
    } catch (caught) {
      setError(caught as Error);
    }
    setBusy(false);
  };
  if (!record.estimate.fits) return <p>There is nothing to measure: this configuration would not start.</p>;
  return (
    <form onSubmit={start} class="proof-form">
      <fieldset class="tiles">
        <legend>How thoroughly</legend>
        <div>
          {MODES.map(([name, label, text]) => (
            <label key={name}>
              <input type="radio" name="mode" value={name} checked={mode === name} onChange={() => setMode(name)} />
              <span>
                <b>{label}</b>
                <small>{text}</small>
              </span>
            </label>
          ))}
        </div>
      </fieldset>
      <div class="columns three">
        <div class="field">
          <label for="proof-minutes">At most</label>
          <span class="with-unit">
            <input id="proof-minutes" type="number" min="0.1" step="any" required value={minutes} onInput={(event) => setMinutes(event.currentTarget.value)} />
            <span class="unit">minutes</span>
          </span>
        </div>
        <div class="field">
          <label for="proof-node">Worker</label>
          <select id="proof-node" value={node} onChange={(event) => setNode(event.currentTarget.value)}>
            <option value="">any that has the hardware</option>
            {workers.value?.map((item) => <option key={item.node}>{item.node}</option>)}
          </select>
        </div>
        <div class="field">
          <label for="proof-path">Model folder on the worker</label>
          <input id="proof-path" type="text" placeholder="the model's id" value={path} onInput={(event) => setPath(event.currentTarget.value)} />
        </div>
      </div>
      <label class="check">
        <input type="checkbox" checked={wait} onChange={(event) => setWait(event.currentTarget.checked)} />
        Wait for a worker when none is free or connected
      </label>
      {error && <Refused error={error} />}
      <div class="row">
        <button class="button primary" disabled={busy}>
          {busy ? "Starting…" : "Measure it"}
        </button>
        <span class="faint">
          {workers.value ? `${workers.value.length} worker${workers.value.length === 1 ? "" : "s"} connected` : ""}
        </span>
      </div>
    </form>
  );
}

function useValidation(id: string, onFinished: () => void) {
  const [state, setState] = useState<{ value: Validation | null; error: Error | null }>({ value: null, error: null });
  useEffect(() => {
    const stop = new AbortController();
    const refresh = async () => {
      try {
        const value = await getValidation(id);
        if (!stop.signal.aborted) setState({ value, error: null });
        return value;
      } catch (error) {
        if (!stop.signal.aborted) setState((before) => ({ ...before, error: error as Error }));
        return null;
      }
    };
    const follow = async () => {
      const first = await refresh();
      if (!first || TERMINAL.includes(first.status)) return;
      await followValidation(id, () => void refresh(), stop.signal).catch((error: Error) => {
        if (!stop.signal.aborted) setState((before) => ({ ...before, error }));
      });
      if (stop.signal.aborted) return;
      await refresh();
      onFinished();
    };
    void follow();
    return () => stop.abort();
  }, [id]);
  return state;
}

function Progress({ validation }: { validation: Validation }) {
  const at = STAGES.indexOf(validation.status);
  return (
    <div class="progress">
      <ol class="stages">
        {STAGES.map((stage, index) => (
          <li key={stage} class={index < at ? "done" : index === at ? "now" : ""} aria-current={index === at ? "step" : undefined}>
            {WORDS[stage]}
          </li>
        ))}
      </ol>
      <progress max="1" value={validation.progress} aria-label="Progress of the validation" />
      <p role="status">
        {WORDS[validation.status] ?? validation.status}
        {validation.stage !== validation.status && `: ${validation.stage}`}
      </p>
    </div>
  );
}

type Row = [string, string, string, number | undefined];

function Against({ rows, label }: { rows: Row[]; label: string }) {
  if (!rows.length) return null;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>
            <th scope="col">{label}</th>
            <th scope="col" class="num">Measured</th>
            <th scope="col" class="num">Predicted</th>
            <th scope="col" class="error">Off by</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, measured, predicted, error]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td class="num">
                <b>{measured}</b>
              </td>
              <td class="num">{predicted}</td>
              <td class="error">
                <ErrorBar percent={error} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const LATENCIES: LatencyName[] = ["ttft", "tpot", "itl", "e2el"];
const STARTUP: [keyof StartupFigures, string, (value: number | null | undefined) => string][] = [
  ["weights_gib", "Weights", gib],
  ["kv_cache_gib", "KV cache", gib],
  ["kv_cache_tokens", "KV cache tokens", count],
  ["max_concurrency", "Requests of full length", figure],
  ["cuda_graphs_gib", "CUDA graphs", gib],
];

function startupRows(startup: NonNullable<Validation["startup"]>): Row[] {
  return STARTUP.filter(([name]) => startup[name] != null).map(([name, label, write]) => [
    label,
    write(startup[name] as number),
    write(startup.predicted[name]),
    startup.error_percent[name],
  ]);
}

/** Returns the rows that the prediction speaks of, for example `ttft_ms_p95` or `requests_per_s`. */
function loadRows(point: LoadPoint): Row[] {
  return Object.entries(point.predicted).map(([key, predicted]) => {
    const latency = /^(ttft|tpot|itl|e2el)_ms_(mean|p\d+)$/.exec(key);
    const measured = latency
      ? point[`${latency[1]}_ms` as "ttft_ms"]?.[latency[2] as "p50"]
      : (point as unknown as Record<string, number | null>)[key];
    const write = latency ? duration : figure;
    return [words(key), write(measured), write(predicted), point.error_percent[key]];
  });
}

const SHOWN = /_(mean|p95)$|_per_s$|^preemptions/;

function LoadPointView({ point, open }: { point: LoadPoint; open: boolean }) {
  const rows = loadRows(point);
  const keys = Object.keys(point.predicted);
  return (
    <details class="load-point" open={open}>
      <summary>
        {arrivals(point.offered)} {point.label && <span class="tag">{point.label}</span>}
      </summary>
      <p class="note">
        {count(point.completed)} answered, {count(point.failed)} failed in {figure(point.duration_s)} s;{" "}
        {figure(point.output_tokens_per_s)} output tokens/s; {figure(point.preemptions)} preemptions
        {point.kv_cache_usage_peak != null && `; KV cache ${figure(point.kv_cache_usage_peak * 100)} % at the peak`}.
      </p>
      {rows.length > 0 && (
        <>
          <p class="note key">
            <span>
              <i class="dot" /> measured
            </span>
            <span>
              <i class="ring" /> predicted
            </span>
          </p>
          <div class="latencies">
            {LATENCIES.map((metric) => (
              <MeasuredChart key={metric} metric={metric} measured={point[`${metric}_ms`]} predicted={point.predicted} />
            ))}
          </div>
        </>
      )}
      <Against rows={rows.filter((_, index) => SHOWN.test(keys[index]!))} label="Under load" />
    </details>
  );
}

function MeasuredTargets({ slo }: { slo: Validation["slo"] }) {
  if (!slo.length) return null;
  return (
    <ul class="other-targets">
      {slo.map((item) => {
        const metric = String(item.target["metric"]);
        const latency = item.target["limit_ms"] != null;
        const write = latency ? duration : figure;
        const [tone, word] = VERDICTS[item.verdict] ?? ["info", item.verdict];
        return (
          <li key={metric + item.target["percentile"]}>
            <span>
              {METRICS[metric] ?? words(metric)} {item.target["percentile"] ? quantile(item.target["percentile"]) : ""}
            </span>
            <b>
              {write(item.measured)}
              {item.interval && (
                <small>
                  {" "}
                  {write(item.interval[0])} to {item.interval[1] == null ? "unknown" : write(item.interval[1])}
                </small>
              )}
            </b>
            <Pill tone={tone}>
              limit {write(Number(item.target["limit_ms"] ?? item.target["limit"]))} {word}
            </Pill>
          </li>
        );
      })}
    </ul>
  );
}

function ComparisonView({ comparison }: { comparison: NonNullable<Validation["comparison"]> }) {
  return (
    <section>
      <h3>Against vLLM's defaults, {comparison.starts_each} starts of each</h3>
      <div class="scroll" tabIndex={0} role="group" aria-label="Measured against the defaults">
        <table>
          <thead>
            <tr>
              <th scope="col">Figure</th>
              <th scope="col" class="num">Defaults</th>
              <th scope="col" class="num">Recommended</th>
              <th scope="col" class="error">Outcome</th>
            </tr>
          </thead>
          <tbody>
            {comparison.figures.map((item) => (
              <tr key={item.metric}>
                <th scope="row">{words(item.metric)}</th>
                <td class="num">{figure(item.defaults)}</td>
                <td class="num">{figure(item.recommended)}</td>
                <td class="error">
                  <Pill tone={item.outcome === "better" ? "good" : item.outcome === "worse" ? "bad" : "plain"}>
                    {item.outcome.replaceAll("_", " ")}
                  </Pill>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Outcome({ validation }: { validation: Validation }) {
  const { environment, startup, failure } = validation;
  return (
    <>
      {environment && (
        <p class="note">
          On {environment.node}: {environment.gpus.map((gpu) => gpu.name).join(", ") || "CPU"}, vLLM {environment.vllm_version}
          {environment.as_asked === false && ". This is not the hardware, release or model that was asked about."}
        </p>
      )}
      {validation.notes?.map((note) => <p key={note}>{note}</p>)}
      {failure && (
        <div class="alert bad">
          <strong>
            It ended at {failure.stage}: {failure.reason}
          </strong>
          {failure.log_tail && (
            <details class="inline">
              <summary>End of the log</summary>
              <pre tabIndex={0} class="file">
                <code>{failure.log_tail}</code>
              </pre>
            </details>
          )}
        </div>
      )}
      <MeasuredTargets slo={validation.slo} />
      {startup && (
        <>
          <h3>Start{startup["seconds"] != null && ` in ${figure(startup["seconds"] as number)} s`}</h3>
          <Against rows={startupRows(startup)} label="At the start" />
        </>
      )}
      {validation.comparison && <ComparisonView comparison={validation.comparison} />}
      {validation.knee && (
        <p>
          <b>Knee:</b> max_num_seqs {validation.knee.max_num_seqs} at {figure(validation.knee.requests_per_s)} requests/s:{" "}
          {validation.knee.reason}
        </p>
      )}
      {validation.load_points.length > 0 && <h3>Under load</h3>}
      {validation.load_points.map((point, index) => (
        <LoadPointView key={point.label ?? index} point={point} open={index === validation.load_points.length - 1} />
      ))}
      {validation.suggested_config && (
        <>
          <h3>Suggested by the measurement</h3>
          <ConfigList config={validation.suggested_config} />
        </>
      )}
      {validation.command.length > 0 && (
        <details class="inline">
          <summary>Command that ran</summary>
          <pre tabIndex={0}>
            <code>{validation.command.map((word) => value(word)).join(" ")}</code>
          </pre>
          <Copy text={validation.command.join(" ")} />
        </details>
      )}
    </>
  );
}

function ValidationView({ id, onFinished }: { id: string; onFinished: () => void }) {
  const { value: validation, error } = useValidation(id, onFinished);
  const [cancelError, setCancelError] = useState<Error | null>(null);
  if (!validation) return error ? <Failure error={error} /> : <Waiting what="Loading the validation" />;
  const finished = TERMINAL.includes(validation.status);
  return (
    <div class="validation">
      <p class="row">
        <Pill tone={toneOf(validation.status, validation.verdict)}>{outcomeWord(validation)}</Pill>
        <span class="faint">
          {MODES.find(([name]) => name === validation.mode)?.[1] ?? validation.mode} · {moment(validation.created_at)}
          {validation.finished_at && ` · finished ${ago(validation.finished_at)}`}
        </span>
        {!finished && (
          <button type="button" class="button small" onClick={() => cancelValidation(id).catch(setCancelError)}>
            Cancel
          </button>
        )}
      </p>
      {!finished && <Progress validation={validation} />}
      {error && <Failure error={error} />}
      {cancelError && <Failure error={cancelError} />}
      <Outcome validation={validation} />
    </div>
  );
}

export function ProofTab({ record, reload }: { record: Recommendation; reload: () => void }) {
  const [shown, setShown] = useState(record.validations[0]?.id ?? "");
  const known = record.validations.some((item) => item.id === shown);
  const all = known || !shown ? record.validations : [{ id: shown, status: "queued", verdict: null, url: "" }, ...record.validations];
  return (
    <div class="cards">
      {shown && (
        <Card title="Predicted against measured" class="wide">
          {all.length > 1 && (
            <ul class="runs">
              {all.map((item) => (
                <li key={item.id}>
                  <button type="button" class="button small" aria-pressed={item.id === shown} onClick={() => setShown(item.id)}>
                    {outcomeWord(item)} <small>{item.id.slice(-6)}</small>
                  </button>
                </li>
              ))}
            </ul>
          )}
          <ValidationView key={shown} id={shown} onFinished={reload} />
        </Card>
      )}
      <Card title="Measure it on real hardware" class="wide" note="A worker starts vLLM with exactly these settings and puts this load on it.">
        <StartForm record={record} onStarted={setShown} />
      </Card>
    </div>
  );
}
