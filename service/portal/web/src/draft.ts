// What the form holds, and how it becomes a request: an empty field is left to the service.
import type { Arrivals, Json, Lengths, PresetDescription, Target, TuningRequest, Understood } from "./types";

export type LoadKind = "unknown" | "users" | "rate" | "concurrency" | "batch" | "kept";

export interface Draft {
  model: string;
  modelConfig: string;
  gpu: string;
  gpusPerNode: string;
  nodes: string;
  interconnect: string;
  usedMemoryGib: string;
  pricePerGpuHour: string;
  preset: string;
  loadKind: LoadKind;
  load: string;
  /** Null: the preset's own targets. */
  targets: Target[] | null;
  promptMean: string;
  promptP99: string;
  outputMean: string;
  outputP99: string;
  sharedPrefix: string;
  maxRequest: string;
  objective: string;
  posture: string;
  version: string;
  maxTensorParallel: string;
  allowFp8Cache: boolean;
  allowOnlineQuantization: boolean;
  labels: string;
  /** Parts of an earlier request that the form has no field for. */
  kept: { prompt?: Lengths | null; output?: Lengths | null; arrivals?: Arrivals | null; slo?: Record<string, Json> };
}

export const EMPTY: Draft = {
  model: "",
  modelConfig: "",
  gpu: "",
  gpusPerNode: "1",
  nodes: "1",
  interconnect: "",
  usedMemoryGib: "",
  pricePerGpuHour: "",
  preset: "chat",
  loadKind: "unknown",
  load: "",
  targets: null,
  promptMean: "",
  promptP99: "",
  outputMean: "",
  outputP99: "",
  sharedPrefix: "",
  maxRequest: "",
  objective: "balanced",
  posture: "production",
  version: "",
  maxTensorParallel: "",
  allowFp8Cache: true,
  allowOnlineQuantization: false,
  labels: "",
  kept: {},
};

/** Returns the object without what was left empty. */
function given<T extends object>(fields: T): T {
  return Object.fromEntries(
    Object.entries(fields).filter(([, field]) => field !== undefined && field !== ""),
  ) as T;
}

function number(text: string): number | undefined {
  return text.trim() === "" ? undefined : Number(text);
}

function lengthsOf(mean: string, p99: string, kept: Lengths | null | undefined): Lengths | null | undefined {
  if (mean === "") return kept;
  if (p99 === "") return Number(mean);
  return { kind: "lognormal", mean: Number(mean), p99: Number(p99) };
}

function arrivalsOf(draft: Draft): Arrivals | null | undefined {
  const amount = number(draft.load);
  if (draft.loadKind === "kept") return draft.kept.arrivals;
  if (draft.loadKind === "unknown" || amount === undefined) return undefined;
  switch (draft.loadKind) {
    case "users":
      return { kind: "users", users: amount };
    case "rate":
      return { kind: "poisson", requests_per_s: amount };
    case "concurrency":
      return { kind: "closed_loop", max_concurrency: amount };
    case "batch":
      return { kind: "batch", num_requests: amount };
  }
}

export function readLabels(text: string): Record<string, string> {
  const pairs = text
    .split(/[,\n]/)
    .map((part) => part.trim())
    .filter(Boolean)
    .map((part) => {
      const [name = "", ...rest] = part.split("=");
      return [name.trim(), rest.join("=").trim()];
    });
  return Object.fromEntries(pairs) as Record<string, string>;
}

/** Throws a SyntaxError when the pasted config is not JSON. */
export function toRequest(draft: Draft): TuningRequest {
  const constraints = given({
    max_tensor_parallel_size: number(draft.maxTensorParallel),
    allow_fp8_kv_cache: draft.allowFp8Cache ? undefined : false,
    allow_online_quantization: draft.allowOnlineQuantization ? true : undefined,
  });
  const labels = readLabels(draft.labels);
  const slo =
    draft.targets === null && !draft.kept.slo
      ? undefined
      : { ...draft.kept.slo, targets: draft.targets ?? [] };
  return given({
    model: given({
      id: draft.model.trim(),
      config: draft.modelConfig.trim()
        ? (JSON.parse(draft.modelConfig) as Record<string, Json>)
        : undefined,
    }),
    hardware: given({
      gpu: draft.gpu.trim(),
      gpus_per_node: number(draft.gpusPerNode),
      nodes: draft.nodes === "1" ? undefined : number(draft.nodes),
      interconnect: draft.interconnect || undefined,
      used_memory_gib: number(draft.usedMemoryGib),
      price_per_gpu_hour: number(draft.pricePerGpuHour),
    }),
    workload: given({
      preset: draft.preset,
      prompt_tokens: lengthsOf(draft.promptMean, draft.promptP99, draft.kept.prompt),
      output_tokens: lengthsOf(draft.outputMean, draft.outputP99, draft.kept.output),
      arrivals: arrivalsOf(draft),
      shared_prefix_tokens: number(draft.sharedPrefix),
      max_request_tokens: number(draft.maxRequest),
    }),
    slo,
    objective: draft.objective === EMPTY.objective ? undefined : draft.objective,
    posture: draft.posture === EMPTY.posture ? undefined : draft.posture,
    engine: draft.version ? { version: draft.version } : undefined,
    constraints: Object.keys(constraints).length ? constraints : undefined,
    labels: Object.keys(labels).length ? labels : undefined,
  }) as TuningRequest;
}

const same = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);
const text = (item: unknown) => (item == null ? "" : String(item));

function lengthFields(item: Lengths | null | undefined, usual: Lengths | null | undefined) {
  if (item == null || same(item, usual)) return { mean: "", p99: "", kept: undefined };
  if (typeof item === "number") return { mean: String(item), p99: "", kept: undefined };
  if (item.kind === "lognormal")
    return { mean: text(item["mean"]), p99: text(item["p99"]), kept: undefined };
  if (item.kind === "fixed") return { mean: text(item["tokens"]), p99: "", kept: undefined };
  return { mean: "", p99: "", kept: item };
}

function loadFields(item: Arrivals | null | undefined): Pick<Draft, "loadKind" | "load"> {
  switch (item?.kind) {
    case undefined:
      return { loadKind: "unknown", load: "" };
    case "poisson":
      return { loadKind: "rate", load: text(Number((item["requests_per_s"] as number).toPrecision(6))) };
    case "closed_loop":
      return { loadKind: "concurrency", load: text(item["max_concurrency"]) };
    case "batch":
      return { loadKind: "batch", load: text(item["num_requests"]) };
    case "users":
      return { loadKind: "users", load: text(item["users"]) };
    default:
      return { loadKind: "kept", load: "" };
  }
}

/** Returns the form that would ask the same again; what equals the preset stays empty. */
export function fromRequest(
  request: Understood,
  labels: Record<string, string>,
  presets: PresetDescription[],
): Draft {
  const preset = presets.find((item) => item.name === request.workload.preset);
  const prompt = lengthFields(request.workload.prompt_tokens, preset?.workload.prompt_tokens);
  const output = lengthFields(request.workload.output_tokens, preset?.workload.output_tokens);
  const { targets = [], ...limits } = request.slo;
  const usualSlo = same(request.slo, preset?.slo);
  const constraints = request.constraints ?? {};
  return {
    ...EMPTY,
    model: request.model.id,
    modelConfig: request.model.config ? JSON.stringify(request.model.config, null, 2) : "",
    gpu: request.hardware.gpu,
    gpusPerNode: text(request.hardware.gpus_per_node ?? 1),
    nodes: text(request.hardware.nodes ?? 1),
    interconnect: request.hardware.interconnect ?? "",
    usedMemoryGib: text(request.hardware.used_memory_gib),
    pricePerGpuHour: text(request.hardware.price_per_gpu_hour),
    preset: request.workload.preset ?? EMPTY.preset,
    ...loadFields(request.workload.arrivals),
    targets: usualSlo ? null : targets,
    promptMean: prompt.mean,
    promptP99: prompt.p99,
    outputMean: output.mean,
    outputP99: output.p99,
    sharedPrefix: same(request.workload.shared_prefix_tokens, preset?.workload.shared_prefix_tokens)
      ? ""
      : text(request.workload.shared_prefix_tokens),
    maxRequest: text(request.workload.max_request_tokens),
    objective: request.objective,
    posture: request.posture,
    version: request.engine.version ?? "",
    maxTensorParallel: text(constraints["max_tensor_parallel_size"]),
    allowFp8Cache: constraints["allow_fp8_kv_cache"] !== false,
    allowOnlineQuantization: constraints["allow_online_quantization"] === true,
    labels: Object.entries(labels)
      .map(([name, item]) => (item ? `${name}=${item}` : name))
      .join(", "),
    kept: {
      prompt: prompt.kept,
      output: output.kept,
      arrivals: request.workload.arrivals,
      slo: usualSlo ? undefined : (limits as Record<string, Json>),
    },
  };
}
