// The question: which model, which GPUs, which load, which targets.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, findModels, getRecommendation, listGpus, listPresets, listVersions, recommend } from "./api";
import { Combobox, type Option } from "./combobox";
import { type Draft, EMPTY, fromRequest, type LoadKind, toRequest } from "./draft";
import { arrivals, gib, lengths, METRICS, target } from "./format";
import { useLoaded } from "./hooks";
import { Copy, Failure } from "./parts";
import type { Json, LatencyName, PresetDescription, Recommendation, Target, Understood } from "./types";

type Change = (fields: Partial<Draft>) => void;

/** Places in the request's body and the field that shows them. */
const PLACES: [string, string][] = [
  ["/model", "model"],
  ["/hardware/gpus_per_node", "gpus-per-node"],
  ["/hardware/nodes", "nodes"],
  ["/hardware/used_memory_gib", "used-memory"],
  ["/hardware/price", "price"],
  ["/hardware", "gpu"],
  ["/workload/prompt_tokens", "prompt-mean"],
  ["/workload/output_tokens", "output-mean"],
  ["/workload/shared_prefix", "shared-prefix"],
  ["/workload/max_request", "max-request"],
  ["/workload/arrivals", "load"],
  ["/slo", "targets"],
  ["/engine", "version"],
  ["/labels", "labels"],
];

type Mistakes = Record<string, string>;

function mistakesOf(error: Error | null): Mistakes {
  if (!(error instanceof ApiError)) return {};
  const found: Mistakes = {};
  for (const { pointer, message } of error.problem.errors ?? []) {
    const place = PLACES.find(([prefix]) => pointer.startsWith(prefix));
    if (place) found[place[1]] = message;
  }
  return found;
}

function Field(props: {
  id: string;
  label: string;
  hint?: ComponentChildren;
  mistake?: string;
  class?: string;
  children: ComponentChildren;
}) {
  return (
    <div class={`field ${props.class ?? ""}`}>
      <label for={props.id}>{props.label}</label>
      {props.children}
      {props.hint && (
        <p class="hint" id={`${props.id}-hint`}>
          {props.hint}
        </p>
      )}
      {props.mistake && (
        <p class="mistake" id={`${props.id}-mistake`}>
          {props.mistake}
        </p>
      )}
    </div>
  );
}

function NumberField(props: {
  id: string;
  label: string;
  unit?: string;
  value: string;
  onChange: (value: string) => void;
  placeholder?: string;
  min?: number;
  step?: number | "any";
  required?: boolean;
  hint?: string;
  mistakes: Mistakes;
}) {
  const mistake = props.mistakes[props.id];
  return (
    <Field id={props.id} label={props.label} hint={props.hint} mistake={mistake}>
      <span class="with-unit">
        <input
          id={props.id}
          type="number"
          inputMode="decimal"
          min={props.min ?? 0}
          step={props.step ?? "any"}
          required={props.required}
          placeholder={props.placeholder}
          aria-invalid={mistake ? true : undefined}
          aria-describedby={
            [props.hint && `${props.id}-hint`, mistake && `${props.id}-mistake`]
              .filter(Boolean)
              .join(" ") || undefined
          }
          value={props.value}
          onInput={(event) => props.onChange(event.currentTarget.value)}
        />
        {props.unit && <span class="unit">{props.unit}</span>}
      </span>
    </Field>
  );
}

function Choices<T extends string>(props: {
  name: string;
  legend: string;
  value: T;
  options: [T, string][];
  onChange: (value: T) => void;
}) {
  return (
    <fieldset class="segments">
      <legend>{props.legend}</legend>
      <div>
        {props.options.map(([value, label]) => (
          <label key={value}>
            <input
              type="radio"
              name={props.name}
              value={value}
              checked={props.value === value}
              onChange={() => props.onChange(value)}
            />
            <span>{label}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

async function modelOptions(text: string, signal: AbortSignal): Promise<Option[]> {
  const found = await findModels(text, signal);
  return found
    .filter((model) => model.supported)
    .map((model) => ({
      value: model.id,
      detail: model.origin === "registered" ? `${model.architecture}, registered` : model.architecture,
    }));
}

async function gpuOptions(text: string): Promise<Option[]> {
  const words = text.toLowerCase().split(/[\s-]+/).filter(Boolean);
  const gpus = await listGpus();
  return gpus
    .filter((gpu) => words.every((word) => `${gpu.name} ${gpu.arch} ${gpu.vendor}`.toLowerCase().includes(word)))
    .map((gpu) => ({
      value: gpu.name,
      detail: `${gib(gpu.memory_gib)}, ${gpu.bandwidth_gb_s.toLocaleString("en-US")} GB/s, ${gpu.arch}`,
    }));
}

type PartProps = { draft: Draft; change: Change; mistakes: Mistakes };

function ModelPart({ draft, change, mistakes }: PartProps) {
  return (
    <>
      <Field
        id="model"
        label="Model"
        mistake={mistakes["model"]}
        hint="Type part of a name as on the Hugging Face Hub. A fine-tune or an unlisted model: name it and paste its config below."
      >
        <Combobox
          id="model"
          value={draft.model}
          onChange={(model) => change({ model })}
          find={modelOptions}
          required
          placeholder="Search, for example llama 3.1 8b"
          invalid={Boolean(mistakes["model"])}
          describedBy={mistakes["model"] ? "model-hint model-mistake" : "model-hint"}
          footer="Not in the catalogue: paste its config.json below"
        />
      </Field>
      <details class="inline" open={Boolean(draft.modelConfig)}>
        <summary>Paste a config.json</summary>
        <label class="offscreen" for="model-config">
          The model's config.json
        </label>
        <textarea
          id="model-config"
          rows={6}
          spellcheck={false}
          placeholder={'{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, …}'}
          value={draft.modelConfig}
          onInput={(event) => change({ modelConfig: event.currentTarget.value })}
        />
      </details>
    </>
  );
}

function HardwarePart({ draft, change, mistakes }: PartProps) {
  return (
    <div class="columns two-one">
      <Field id="gpu" label="GPU" mistake={mistakes["gpu"]}>
        <Combobox
          id="gpu"
          value={draft.gpu}
          onChange={(gpu) => change({ gpu })}
          find={gpuOptions}
          required
          placeholder="Search, for example h100"
          invalid={Boolean(mistakes["gpu"])}
          describedBy={mistakes["gpu"] ? "gpu-mistake" : undefined}
          footer="Not listed: names from nvidia-smi and cloud instances are understood too"
        />
      </Field>
      <NumberField
        id="gpus-per-node"
        label="GPUs in the machine"
        min={1}
        step={1}
        required
        value={draft.gpusPerNode}
        onChange={(gpusPerNode) => change({ gpusPerNode })}
        mistakes={mistakes}
      />
    </div>
  );
}

function PresetPart(props: PartProps & { presets: PresetDescription[] }) {
  return (
    <fieldset class="tiles">
      <legend>Workload</legend>
      <div>
        {props.presets.map((preset) => {
          const [name, ...rest] = preset.title.split(/: (.*)/);
          return (
            <label key={preset.name}>
              <input
                type="radio"
                name="preset"
                value={preset.name}
                checked={props.draft.preset === preset.name}
                onChange={() => props.change({ preset: preset.name, targets: null })}
              />
              <span>
                <b>{name}</b>
                <small>{rest[0] ?? ""}</small>
              </span>
            </label>
          );
        })}
      </div>
    </fieldset>
  );
}

const LOADS: [LoadKind, string][] = [
  ["unknown", "Not sure"],
  ["users", "Users"],
  ["rate", "Requests/s"],
  ["concurrency", "In flight"],
  ["batch", "Batch"],
];
const LOAD_FIELDS: Partial<Record<LoadKind, [string, string, string]>> = {
  users: ["Number of users", "users", "Turned into a peak rate; the answer states how."],
  rate: ["Arrival rate at the peak", "requests/s", "Independent arrivals at this mean rate."],
  concurrency: ["Requests in flight", "at once", "Each finished one is replaced at once."],
  batch: ["Size of the batch", "requests", "All of them wait at the start."],
};

function LoadPart({ draft, change, mistakes }: PartProps) {
  const options: [LoadKind, string][] = draft.kept.arrivals && draft.loadKind === "kept"
    ? [["kept", "As before"], ...LOADS]
    : LOADS;
  const field = LOAD_FIELDS[draft.loadKind];
  return (
    <div class="load">
      <Choices
        name="load-kind"
        legend="Load"
        value={draft.loadKind}
        options={options}
        onChange={(loadKind) => change({ loadKind, load: "" })}
      />
      {field ? (
        <NumberField
          id="load"
          label={field[0]}
          unit={field[1]}
          hint={field[2]}
          required
          value={draft.load}
          onChange={(load) => change({ load })}
          mistakes={mistakes}
        />
      ) : (
        <p class="hint">
          {draft.loadKind === "kept"
            ? arrivals(draft.kept.arrivals)
            : "A load that suits this hardware is assumed, and the answer says which."}
        </p>
      )}
    </div>
  );
}

const PERCENTILES: Target["percentile"][] = [50, 90, 95, 99, "mean"];

function TargetRow(props: { item: Target; index: number; onChange: (item: Target) => void; onRemove: () => void }) {
  const { item, index } = props;
  const at = `of target ${index + 1}`;
  return (
    <li>
      <select
        aria-label={`Metric ${at}`}
        value={item.metric}
        onChange={(event) => props.onChange({ ...item, metric: event.currentTarget.value as LatencyName })}
      >
        {Object.entries(METRICS).map(([name, label]) => (
          <option key={name} value={name}>
            {label}
          </option>
        ))}
      </select>
      <select
        aria-label={`Percentile ${at}`}
        value={String(item.percentile)}
        onChange={(event) => {
          const chosen = event.currentTarget.value;
          props.onChange({ ...item, percentile: (chosen === "mean" ? chosen : Number(chosen)) as Target["percentile"] });
        }}
      >
        {PERCENTILES.map((percentile) => (
          <option key={percentile} value={String(percentile)}>
            {percentile === "mean" ? "mean" : `p${percentile}`}
          </option>
        ))}
      </select>
      <span class="with-unit">
        <input
          type="number"
          inputMode="decimal"
          min="0"
          step="any"
          required
          aria-label={`Limit ${at}, milliseconds`}
          value={item.limit_ms}
          onInput={(event) => props.onChange({ ...item, limit_ms: Number(event.currentTarget.value) })}
        />
        <span class="unit">ms</span>
      </span>
      <button type="button" class="button small quiet" aria-label={`Remove target ${index + 1}`} onClick={props.onRemove}>
        ✕
      </button>
    </li>
  );
}

function TargetsPart(props: PartProps & { preset: PresetDescription | undefined }) {
  const usual = props.preset?.slo.targets ?? [];
  const items = props.draft.targets ?? usual;
  const set = (targets: Target[] | null) => props.change({ targets });
  return (
    <fieldset class="targets" id="targets">
      <legend>
        Latency targets{" "}
        {props.draft.targets === null ? (
          <span class="tag">usual for this workload</span>
        ) : (
          <button type="button" class="link" onClick={() => set(null)}>
            back to the usual ones
          </button>
        )}
      </legend>
      {props.mistakes["targets"] && <p class="mistake">{props.mistakes["targets"]}</p>}
      <ul>
        {items.map((item, index) => (
          <TargetRow
            key={index}
            item={item}
            index={index}
            onChange={(changed) => set(items.map((other, at) => (at === index ? changed : other)))}
            onRemove={() => set(items.filter((_, at) => at !== index))}
          />
        ))}
      </ul>
      {!items.length && <p class="hint">None: throughput alone counts.</p>}
      <button
        type="button"
        class="button small"
        onClick={() => set([...items, { metric: "ttft", percentile: 95, limit_ms: 500 }])}
      >
        Add a target
      </button>
    </fieldset>
  );
}

function SelectField(props: {
  id: string;
  label: string;
  value: string;
  options: [string, string][];
  onChange: (value: string) => void;
}) {
  return (
    <Field id={props.id} label={props.label}>
      <select id={props.id} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        {props.options.map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
    </Field>
  );
}

function Toggle(props: { label: string; checked: boolean; onChange: (checked: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={props.checked} onChange={(event) => props.onChange(event.currentTarget.checked)} />
      {props.label}
    </label>
  );
}

function MorePart(props: PartProps & { preset: PresetDescription | undefined }) {
  const { draft, change, mistakes, preset } = props;
  const versions = useLoaded(listVersions, "versions").value ?? [];
  const usual = (name: "prompt_tokens" | "output_tokens", key: string) => {
    const item = preset?.workload[name];
    return item && typeof item === "object" ? String((item as Record<string, Json>)[key] ?? "") : "";
  };
  const field = (id: string, label: string, key: keyof Draft, extra: Partial<Parameters<typeof NumberField>[0]> = {}) => (
    <NumberField
      id={id}
      label={label}
      value={draft[key] as string}
      onChange={(value) => change({ [key]: value })}
      mistakes={mistakes}
      {...extra}
    />
  );
  return (
    <details class="more">
      <summary>Lengths, hardware details, objective, version, labels</summary>
      <div class="columns four">
        {field("prompt-mean", "Prompt, mean", "promptMean", { unit: "tokens", min: 1, placeholder: usual("prompt_tokens", "mean") })}
        {field("prompt-p99", "Prompt, p99", "promptP99", { unit: "tokens", min: 1, placeholder: usual("prompt_tokens", "p99") })}
        {field("output-mean", "Answer, mean", "outputMean", { unit: "tokens", min: 1, placeholder: usual("output_tokens", "mean") })}
        {field("output-p99", "Answer, p99", "outputP99", { unit: "tokens", min: 1, placeholder: usual("output_tokens", "p99") })}
        {field("shared-prefix", "Shared beginning", "sharedPrefix", { unit: "tokens", placeholder: String(preset?.workload.shared_prefix_tokens ?? 0) })}
        {field("max-request", "Longest request", "maxRequest", { unit: "tokens", min: 1 })}
        {field("nodes", "Machines", "nodes", { min: 1, step: 1 })}
        <SelectField
          id="interconnect"
          label="GPU link"
          value={draft.interconnect}
          onChange={(interconnect) => change({ interconnect })}
          options={[["", "usual for the GPU"], ["nvlink", "NVLink"], ["pcie", "PCIe"], ["xgmi", "xGMI"], ["none", "none"]]}
        />
        {field("used-memory", "Memory held by others", "usedMemoryGib", { unit: "GiB" })}
        {field("price", "Price of a GPU hour", "pricePerGpuHour")}
        <SelectField
          id="objective"
          label="Objective"
          value={draft.objective}
          onChange={(objective) => change({ objective })}
          options={[["balanced", "balanced"], ["latency", "latency"], ["throughput", "throughput"], ["cost", "cost"]]}
        />
        <SelectField
          id="posture"
          label="Posture"
          value={draft.posture}
          onChange={(posture) => change({ posture })}
          options={[["production", "production"], ["aggressive", "aggressive"]]}
        />
        <SelectField
          id="version"
          label="vLLM"
          value={draft.version}
          onChange={(version) => change({ version })}
          options={[
            ["", "newest known"],
            ...[...versions].reverse().map((item): [string, string] => [item.version, item.supported ? item.version : `${item.version} (old)`]),
          ]}
        />
        {field("max-tp", "Most GPUs per copy", "maxTensorParallel", { min: 1, step: 1 })}
      </div>
      <div class="row">
        <Toggle label="8-bit KV cache allowed" checked={draft.allowFp8Cache} onChange={(allowFp8Cache) => change({ allowFp8Cache })} />
        <Toggle
          label="Quantising at load allowed"
          checked={draft.allowOnlineQuantization}
          onChange={(allowOnlineQuantization) => change({ allowOnlineQuantization })}
        />
      </div>
      <Field id="labels" label="Labels" mistake={mistakes["labels"]} hint="To find it again: team=search, env=prod">
        <input
          id="labels"
          type="text"
          value={draft.labels}
          aria-describedby="labels-hint"
          onInput={(event) => change({ labels: event.currentTarget.value })}
        />
      </Field>
    </details>
  );
}

function Assumed({ draft, preset }: { draft: Draft; preset: PresetDescription | undefined }) {
  if (!preset) return null;
  const request = safeRequest(draft);
  const workload = request?.workload;
  const rows: [string, string, boolean][] = [
    ["Prompts", lengths(workload?.prompt_tokens ?? preset.workload.prompt_tokens), Boolean(workload?.prompt_tokens)],
    ["Answers", lengths(workload?.output_tokens ?? preset.workload.output_tokens), Boolean(workload?.output_tokens)],
    [
      "Shared beginning",
      lengths(workload?.shared_prefix_tokens ?? preset.workload.shared_prefix_tokens ?? 0),
      workload?.shared_prefix_tokens != null,
    ],
    ["Load", workload?.arrivals ? arrivals(workload.arrivals) : "what suits this hardware", Boolean(workload?.arrivals)],
    [
      "Targets",
      (draft.targets ?? preset.slo.targets ?? []).map(target).join("; ") || "none",
      draft.targets !== null,
    ],
    ["vLLM", draft.version || "newest known", Boolean(draft.version)],
    ["Objective", `${draft.objective}, ${draft.posture}`, draft.objective !== "balanced" || draft.posture !== "production"],
    ["KV cache", draft.allowFp8Cache ? "16 or 8 bit" : "16 bit only", !draft.allowFp8Cache],
  ];
  return (
    <aside class="card assumed" aria-labelledby="assumed-title">
      <h2 id="assumed-title">What will be assumed</h2>
      <dl>
        {rows.map(([name, text, stated]) => (
          <div key={name}>
            <dt>
              {name} {stated ? <span class="tag stated">yours</span> : <span class="tag">assumed</span>}
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <details class="inline">
        <summary>Where the assumptions come from</summary>
        <ul class="plain">
          {preset.source.map((source) => (
            <li key={source.title}>{source.title}</li>
          ))}
        </ul>
      </details>
      {request && (
        <details class="inline">
          <summary>The same as an API call</summary>
          <pre tabIndex={0}>
            <code>{curl(request)}</code>
          </pre>
          <Copy text={curl(request)} />
        </details>
      )}
    </aside>
  );
}

function safeRequest(draft: Draft) {
  try {
    return toRequest(draft);
  } catch {
    return null;
  }
}

function curl(request: unknown): string {
  const body = JSON.stringify(request, null, 2).replaceAll("'", "'\\''");
  return `curl -s ${location.origin}/recommendations \\\n  -H 'Content-Type: application/json' \\\n  -d '${body}'`;
}

const EXAMPLES: [string, Partial<Draft>][] = [
  ["Llama 3.1 8B, one H100, chat", { model: "meta-llama/Llama-3.1-8B-Instruct", gpu: "H100-SXM5-80GB", gpusPerNode: "1", preset: "chat" }],
  ["Qwen3 32B, 8 A100, 2,000 users", { model: "Qwen/Qwen3-32B", gpu: "A100-SXM4-80GB", gpusPerNode: "8", preset: "chat", loadKind: "users", load: "2000" }],
  ["gpt-oss 120B, 8 H100, reasoning", { model: "openai/gpt-oss-120b", gpu: "H100-SXM5-80GB", gpusPerNode: "8", preset: "reasoning" }],
];

/** Returns the request of a record, or the nearest one that can be met when that is wanted. */
function askedBy(record: Recommendation, nearest: boolean): Understood {
  if (!nearest || !record.nearest) return record.request;
  return {
    ...record.request,
    hardware: record.nearest.hardware ?? record.request.hardware,
    slo: record.nearest.slo ?? record.request.slo,
    workload: record.nearest.workload ?? record.request.workload,
    constraints: record.nearest.constraints ?? record.request.constraints,
    engine: record.nearest.engine ?? record.request.engine,
  };
}

export function FormPage({ from, nearest }: { from: string | null; nearest: boolean }) {
  const presets = useLoaded(listPresets, "presets");
  const [draft, setDraft] = useState<Draft>(EMPTY);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const failure = useRef<HTMLDivElement>(null);
  const change: Change = (fields) => setDraft((before) => ({ ...before, ...fields }));

  useEffect(() => {
    document.title = "Tune a model · Setpoint";
    if (!from) return;
    Promise.all([getRecommendation(from), listPresets()]).then(
      ([record, known]) => setDraft(fromRequest(askedBy(record, nearest), record.labels, known)),
      setError,
    );
  }, [from]);

  useEffect(() => {
    if (error) failure.current?.focus();
  }, [error]);

  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const made = await recommend(toRequest(draft));
      location.hash = `#/r/${made.id}`;
    } catch (caught) {
      setError(caught instanceof SyntaxError ? new Error("The pasted config is not valid JSON.") : (caught as Error));
      setBusy(false);
    }
  };

  const mistakes = mistakesOf(error);
  const preset = presets.value?.find((item) => item.name === draft.preset);
  const part = { draft, change, mistakes };
  return (
    <div class="page form-page">
      <div class="intro">
        <h1>Which settings should vLLM run with?</h1>
        <p class="lead">
          Name the model, the GPUs and the load. The answer comes at once: settings with reasons, predicted memory and
          latency, and files ready to commit.
        </p>
        <p class="examples">
          <span>Fill in an example:</span>
          {EXAMPLES.map(([label, fields]) => (
            <button key={label} type="button" class="button small" onClick={() => setDraft({ ...EMPTY, ...fields })}>
              {label}
            </button>
          ))}
        </p>
      </div>
      <form class="card" onSubmit={submit}>
        <div ref={failure} tabIndex={-1}>
          {error && <Failure error={error} />}
        </div>
        {presets.error && <Failure error={presets.error} again={presets.reload} />}
        <ModelPart {...part} />
        <HardwarePart {...part} />
        <PresetPart {...part} presets={presets.value ?? []} />
        <LoadPart {...part} />
        <TargetsPart {...part} preset={preset} />
        <MorePart {...part} preset={preset} />
        <div class="submit">
          <button class="button primary big" disabled={busy}>
            {busy ? "Computing…" : "Get settings"}
          </button>
          <span class="faint" role="status">
            {busy ? "The service compares configurations." : "Nothing is started on your GPUs."}
          </span>
        </div>
      </form>
      <Assumed draft={draft} preset={preset} />
    </div>
  );
}
