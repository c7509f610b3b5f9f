// Sliders over the recommended settings; every move asks POST /estimates.
import { useEffect, useState } from "preact/hooks";
import { estimate as ask } from "./api";
import { MemoryBar, VERDICTS } from "./charts";
import { arrivals, count, device, duration, figure, METRICS, quantile, words } from "./format";
import { useRested, useUniqueId } from "./hooks";
import { Card, Failure, Findings, Pill } from "./parts";
import type { Arrivals, Config, Estimate, Json, Outcome, Recommendation, Slo, Workload } from "./types";

const STEPS = {
  max_num_seqs: [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024],
  max_num_batched_tokens: [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536],
  max_model_len: [1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144],
} as const;
type Stepped = keyof typeof STEPS;

/** A slider over chosen values; the recommended one is always among them. */
function StepSlider(props: {
  name: string;
  label: string;
  unit: string;
  steps: number[];
  value: number;
  recommended: number | null;
  onChange: (value: number) => void;
}) {
  const id = useUniqueId("slider");
  const at = Math.max(0, props.steps.indexOf(props.value));
  const moved = props.recommended !== null && props.value !== props.recommended;
  return (
    <div class="slider">
      <div class="slider-head">
        <label for={id}>
          <code>{props.label}</code>
        </label>
        {moved && (
          <button type="button" class="link" onClick={() => props.onChange(props.recommended!)}>
            back to {props.recommended!.toLocaleString("en-US")}
          </button>
        )}
        <output for={id}>
          {props.value.toLocaleString("en-US")} <small>{props.unit}</small>
        </output>
      </div>
      <input
        id={id}
        type="range"
        min="0"
        max={props.steps.length - 1}
        step="1"
        value={at}
        aria-valuetext={`${props.value.toLocaleString("en-US")} ${props.unit}`}
        onInput={(event) => props.onChange(props.steps[Number(event.currentTarget.value)]!)}
      />
    </div>
  );
}

function Options(props: { legend: string; options: [string, string][]; value: string; onChange: (value: string) => void }) {
  const name = useUniqueId("options");
  return (
    <fieldset class="segments small">
      <legend>
        <code>{props.legend}</code>
      </legend>
      <div>
        {props.options.map(([value, label]) => (
          <label key={value}>
            <input type="radio" name={name} checked={props.value === value} onChange={() => props.onChange(value)} />
            <span>{label}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

function withValue(steps: readonly number[], ...extra: (number | null)[]): number[] {
  const all = new Set([...steps, ...extra.filter((item): item is number => item !== null)]);
  return [...all].sort((a, b) => a - b);
}

/** The load that one of the copies gets: where several share it, each takes its part. */
function loadOfOne(load: Arrivals | null | undefined, copies: number): Arrivals | null | undefined {
  if (!load || copies <= 1) return load;
  const keys = ["requests_per_s", "max_concurrency", "num_requests"];
  return Object.fromEntries(
    Object.entries(load).map(([name, part]) => {
      if (!keys.includes(name)) return [name, part];
      const share = (part as number) / copies;
      return [name, name === "requests_per_s" ? share : Math.max(1, Math.ceil(share))];
    }),
  ) as Arrivals;
}

function sizeOfLoad(load: Arrivals | null | undefined): { key: string; amount: number; unit: string } | null {
  for (const [key, unit] of [
    ["requests_per_s", "requests/s"],
    ["max_concurrency", "in flight"],
    ["num_requests", "requests"],
  ] as const) {
    if (load && key in load) return { key, amount: (load as Record<string, Json>)[key] as number, unit };
  }
  return null;
}

const FACTORS = [0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 8];

interface Moves {
  config: Config;
  load: Arrivals | null | undefined;
}

function question(record: Recommendation, moves: Moves) {
  const { model, hardware, workload, slo, engine } = record.request;
  return {
    model,
    hardware,
    engine: { version: engine.version, config: moves.config },
    workload: { ...workload, arrivals: moves.load } satisfies Workload,
    slo: { targets: slo.targets, max_preemptions_per_request: slo.max_preemptions_per_request } satisfies Slo,
  };
}

/** Asks again whenever the moves have rested; a late answer to an earlier question is dropped. */
function useEstimate(record: Recommendation, moves: Moves) {
  const [state, setState] = useState<{ value: Estimate; error: Error | null; busy: boolean }>({
    value: record.estimate,
    error: null,
    busy: false,
  });
  const rested = useRested(moves, 120);
  useEffect(() => {
    const asked = new AbortController();
    setState((before) => ({ ...before, busy: true }));
    ask(question(record, rested), asked.signal).then(
      (value) => setState({ value, error: null, busy: false }),
      (error: Error) => {
        if (error.name !== "AbortError") setState((before) => ({ ...before, error, busy: false }));
      },
    );
    return () => asked.abort();
  }, [JSON.stringify(rested)]);
  return state;
}

function Beside(props: { name: string; now: string; before: string }) {
  return (
    <tr class={props.now === props.before ? "" : "differs"}>
      <th scope="row">{props.name}</th>
      <td class="num">
        <b>{props.now}</b>
      </td>
      <td class="num">{props.before}</td>
    </tr>
  );
}

function outcomeName({ target }: Outcome): string {
  const metric = String(target["metric"]);
  const name = METRICS[metric] ?? words(metric);
  return target["percentile"] ? `${name} ${quantile(target["percentile"])}` : name;
}

function Outcomes({ outcomes }: { outcomes: Outcome[] }) {
  return (
    <ul class="other-targets">
      {outcomes.map((outcome) => {
        const [tone, word] = VERDICTS[outcome.verdict];
        const limit = outcome.target["limit_ms"] ?? outcome.target["limit"];
        const latency = outcome.predicted_ms != null;
        return (
          <li key={outcomeName(outcome)}>
            <span>{outcomeName(outcome)}</span>
            <b>{latency ? duration(outcome.predicted_ms) : figure(outcome.predicted)}</b>
            <Pill tone={tone}>
              limit {latency ? duration(Number(limit)) : figure(Number(limit))} {word}
            </Pill>
          </li>
        );
      })}
    </ul>
  );
}

function Answer({ now, before, kind, busy }: { now: Estimate; before: Estimate; kind: string; busy: boolean }) {
  const read = (item: Estimate) => [
    ["First token p95", duration(item.performance?.ttft_ms.p95)],
    ["Per token p95", duration(item.performance?.tpot_ms.p95)],
    ["Whole answer p95", duration(item.performance?.e2el_ms.p95)],
    ["Output tokens/s", figure(item.performance?.output_tokens_per_s)],
    ["Running requests", figure(item.performance?.running_requests)],
    ["Waiting requests", figure(item.performance?.waiting_requests)],
    ["Preemptions per request", figure(item.performance?.preemptions_per_request)],
    ["KV cache tokens", count(item.memory?.kv_cache_tokens)],
    ["Requests of full length", figure(item.memory?.max_concurrency)],
  ];
  const old = read(before);
  return (
    <div class="answer" aria-busy={busy}>
      <p class="row" role="status">
        <Pill tone={now.fits ? "good" : "bad"}>{now.fits ? "Starts" : "Does not start"}</Pill>
        {now.performance?.saturated && <Pill tone="bad">Overloaded: the queue grows</Pill>}
        {busy && <span class="spinner" aria-hidden="true" />}
      </p>
      {now.memory && <MemoryBar memory={now.memory} name={`Memory of one ${kind}`} />}
      <Outcomes outcomes={now.slo} />
      <table>
        <thead>
          <tr>
            <th scope="col">Figure</th>
            <th scope="col" class="num">Now</th>
            <th scope="col" class="num">Recommended</th>
          </tr>
        </thead>
        <tbody>
          {read(now).map(([name, text], index) => (
            <Beside key={name} name={name!} now={text!} before={old[index]![1]!} />
          ))}
        </tbody>
      </table>
      {now.findings.length > 0 && <Findings findings={now.findings} />}
    </div>
  );
}

export function WhatIfTab({ record, start }: { record: Recommendation; start: Config }) {
  const base = loadOfOne(record.request.workload.arrivals, record.replicas.count);
  const initial: Moves = { config: record.config, load: base };
  const [moves, setMoves] = useState<Moves>({ ...initial, config: start });
  const { value: now, error, busy } = useEstimate(record, moves);
  // Predicted anew: the stored answer may come from an earlier version of the service.
  const { value: reference } = useEstimate(record, initial);
  const set = (name: string, setting: Json | undefined) => {
    const { [name]: _, ...others } = moves.config;
    setMoves({ ...moves, config: setting === undefined ? others : { ...moves.config, [name]: setting } });
  };
  const defaults = { ...record.estimate.defaults_applied, ...record.config };
  const numberOf = (name: string) => (typeof defaults[name] === "number" ? (defaults[name] as number) : null);
  const slider = (name: Stepped, unit: string) => (
    <StepSlider
      name={name}
      label={name}
      unit={unit}
      steps={withValue(STEPS[name], numberOf(name))}
      value={(moves.config[name] as number | undefined) ?? numberOf(name) ?? STEPS[name][0]}
      recommended={numberOf(name)}
      onChange={(value) => set(name, value)}
    />
  );
  const { gpu, gpus_per_node, nodes = 1 } = record.request.hardware;
  const kind = device(gpu);
  const sizes = [1, 2, 4, 8, 16, 32].filter((size) => size <= (gpus_per_node ?? 1) * nodes);
  const size = sizeOfLoad(base);
  const amounts = size ? FACTORS.map((factor) => Number((size.amount * factor).toPrecision(3))) : [];
  return (
    <div class="whatif">
      <Card
        title="What if"
        note="One copy. Each change is a question to the service."
        actions={
          <button type="button" class="button small" onClick={() => setMoves(initial)}>
            Reset
          </button>
        }
      >
        {slider("max_num_seqs", "requests")}
        {slider("max_num_batched_tokens", "tokens")}
        {slider("max_model_len", "tokens")}
        <StepSlider
          name="gpu_memory_utilization"
          label="gpu_memory_utilization"
          unit={`of the ${kind}`}
          steps={withValue(
            Array.from({ length: 50 }, (_, index) => (50 + index) / 100),
            numberOf("gpu_memory_utilization"),
          )}
          value={(moves.config["gpu_memory_utilization"] as number | undefined) ?? 0.9}
          recommended={numberOf("gpu_memory_utilization")}
          onChange={(value) => set("gpu_memory_utilization", value)}
        />
        {sizes.length > 1 && (
          <Options
            legend="tensor_parallel_size"
            options={sizes.map((item) => [String(item), String(item)])}
            value={String(moves.config["tensor_parallel_size"] ?? 1)}
            onChange={(value) => set("tensor_parallel_size", Number(value))}
          />
        )}
        <Options
          legend="kv_cache_dtype"
          options={[
            ["auto", "as the model"],
            ["fp8", "fp8"],
          ]}
          value={moves.config["kv_cache_dtype"] === "fp8" ? "fp8" : "auto"}
          onChange={(value) => set("kv_cache_dtype", value === "auto" ? undefined : value)}
        />
        {size && (
          <StepSlider
            name="load"
            label="load"
            unit={size.unit}
            steps={withValue(amounts, size.amount)}
            value={((moves.load as Record<string, Json> | null | undefined)?.[size.key] as number | undefined) ?? size.amount}
            recommended={size.amount}
            onChange={(value) => {
              const amount = size.key === "requests_per_s" ? value : Math.max(1, Math.round(value));
              setMoves({ ...moves, load: { ...base!, [size.key]: amount } });
            }}
          />
        )}
        {!size && base && <p class="hint">Load: {arrivals(base)}</p>}
      </Card>
      <Card title="Prediction">
        {error && <Failure error={error} />}
        <Answer now={now} before={reference} kind={kind} busy={busy} />
      </Card>
    </div>
  );
}
