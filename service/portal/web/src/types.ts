// The nouns of the API that this page reads and writes; the OpenAPI document has all of them.

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
export type Config = Record<string, Json>;
export type Severity = "error" | "warning" | "note";

export interface Source {
  title: string;
  where: string;
}

export interface Finding {
  rule: string;
  severity: Severity;
  message: string;
  setting?: string;
  suggestion?: string;
  source?: Source[];
}

export interface Decision {
  setting: string;
  value: Json;
  rule: string;
  reason: string;
  formula: string | null;
  inputs: Record<string, Json>;
  source: Source[];
  if_higher: string;
  if_lower: string;
  confidence: "high" | "medium" | "low";
}

export interface Percentiles {
  mean: number;
  p50: number;
  p90: number;
  p95: number;
  p99: number;
}

export interface Memory {
  total_gib: number;
  requested_gib: number;
  weights_gib: number;
  activation_gib: number;
  non_torch_gib: number;
  cuda_graphs_gib: number;
  kv_cache_gib: number;
  kv_cache_tokens: number;
  max_concurrency: number;
  max_model_len: number;
  largest_max_model_len: number;
  band: Record<string, [number, number]>;
}

export type LatencyName = "ttft" | "tpot" | "itl" | "e2el";

export interface Performance {
  ttft_ms: Percentiles;
  tpot_ms: Percentiles;
  itl_ms: Percentiles;
  e2el_ms: Percentiles;
  requests_per_s: number;
  output_tokens_per_s: number;
  total_tokens_per_s: number;
  goodput_requests_per_s: number;
  preemptions_per_request: number;
  kv_cache_usage: number;
  running_requests: number;
  waiting_requests: number;
  saturated: boolean;
  band: Record<string, [number, number]>;
}

export type TargetVerdict = "met" | "missed" | "uncertain";

export interface Outcome {
  target: Record<string, number | string>;
  predicted_ms: number | null;
  predicted: number | null;
  margin: number;
  verdict: TargetVerdict;
}

export interface Estimate {
  fits: boolean;
  memory: Memory | null;
  performance: Performance | null;
  slo: Outcome[];
  basis: string;
  defaults_applied: Config;
  findings: Finding[];
  provenance: Record<string, string | number>;
}

export interface Target {
  metric: LatencyName;
  percentile: number | "mean";
  limit_ms: number;
}

export interface Slo {
  targets?: Target[];
  min_requests_per_s?: number;
  min_output_tokens_per_s?: number;
  max_preemptions_per_request?: number;
  max_cost_per_million_output_tokens?: number;
}

export type Lengths = number | ({ kind: string } & Record<string, Json>);
export type Arrivals = { kind: string } & Record<string, Json>;

export interface Workload {
  preset?: string;
  prompt_tokens?: Lengths;
  output_tokens?: Lengths;
  arrivals?: Arrivals;
  shared_prefix_tokens?: number;
  max_request_tokens?: number;
}

export interface Model {
  id: string;
  revision?: string;
  config?: Record<string, Json>;
  weights_bytes?: number;
  [key: string]: Json | undefined;
}

export interface Hardware {
  gpu: string;
  gpus_per_node?: number;
  nodes?: number;
  interconnect?: string;
  total_memory_gib?: number;
  used_memory_gib?: number;
  price_per_gpu_hour?: number;
  [key: string]: Json | undefined;
}

export interface TuningRequest {
  model: Model;
  hardware: Hardware;
  workload?: Workload;
  slo?: Slo;
  objective?: string;
  posture?: string;
  engine?: { version?: string };
  constraints?: Record<string, Json>;
  labels?: Record<string, string>;
}

export interface Understood extends TuningRequest {
  workload: Workload;
  slo: Slo;
  objective: string;
  posture: string;
  engine: { version?: string };
  assumptions: string[];
}

export interface Replicas {
  count: number;
  gpus: number;
  requests_per_s_each: number | null;
}

export interface AllCopies {
  count: number;
  gpus: number;
  requests_per_s: number | null;
  output_tokens_per_s: number | null;
  kv_cache_tokens: number;
}

export interface ShortEstimate {
  kv_cache_tokens: number;
  max_concurrency: number;
  ttft_ms_p95: number | null;
  tpot_ms_p95: number | null;
  e2el_ms_p95: number | null;
  requests_per_s: number | null;
  output_tokens_per_s: number | null;
  output_tokens_per_s_per_gpu: number | null;
  preemptions_per_request: number | null;
  meets_slo: boolean | null;
}

export interface Alternative {
  label: string;
  config: Config;
  replicas: Replicas;
  estimate: ShortEstimate;
  trade_off: string;
}

export interface Candidate {
  label: string;
  gpus: number;
  capacity_output_tokens_per_s: number;
  answer_ms: number;
  meets_slo: boolean;
  on_front: boolean;
  chosen: boolean;
  config: Config;
}

export interface RenderedFile {
  path: string;
  media_type: string;
  content: string;
}

export interface Recommendation {
  id: string;
  created_at: string;
  labels: Record<string, string>;
  request: Understood;
  feasible: boolean;
  headline: string;
  binding: { constraint: string; detail: string } | null;
  nearest: {
    change: string;
    config: Config | null;
    hardware: Hardware | null;
    slo: Slo | null;
    detail: string;
    /** Absent in records of early versions. */
    workload?: Workload | null;
    constraints?: Record<string, Json> | null;
  } | null;
  config: Config;
  replicas: Replicas;
  decisions: Decision[];
  estimate: Estimate;
  baseline: Estimate;
  /** Absent in records of early versions. */
  all_copies?: AllCopies;
  baseline_all_copies?: AllCopies;
  alternatives: Alternative[];
  compared?: Candidate[];
  cost: { per_million_output_tokens: number | null; per_hour: number } | null;
  findings: Finding[];
  watch: { metric: string; threshold: string; meaning: string; then: string }[];
  files: RenderedFile[];
  validations: { id: string; status: string; verdict: string | null; url: string }[];
  measured: Json;
  provenance: Record<string, string | number>;
}

export interface Summary {
  id: string;
  created_at: string;
  labels: Record<string, string>;
  model: string;
  gpu: string;
  feasible: boolean;
  headline: string;
}

export interface ModelSummary {
  id: string;
  origin: string;
  architecture: string;
  supported: boolean;
}

export interface GpuSummary {
  name: string;
  vendor: string;
  arch: string;
  memory_gib: number;
  bandwidth_gb_s: number;
}

export interface PresetDescription {
  name: string;
  title: string;
  workload: Workload;
  slo: Slo;
  source: Source[];
}

export interface WorkerNode {
  node: string;
  started_at: string;
  heartbeat_at: string;
  setpoint_version: string;
  driver: string | null;
  devices: {
    name: string;
    uuid: string;
    memory_gib: number;
    free_gib: number;
    compute_capability?: string | null;
    mig?: boolean;
    foreign_processes?: number;
  }[];
  environments: { version: string; path: string; is_cpu: boolean }[];
  queues: string[];
}

export interface LoadPoint {
  label?: string;
  offered: Arrivals;
  duration_s: number;
  completed: number;
  failed: number;
  ttft_ms: Percentiles;
  tpot_ms: Percentiles;
  itl_ms: Percentiles;
  e2el_ms: Percentiles;
  requests_per_s: number;
  output_tokens_per_s: number;
  goodput_requests_per_s: number | null;
  preemptions: number | null;
  preemptions_per_request: number | null;
  kv_cache_usage_peak: number | null;
  predicted: Record<string, number>;
  error_percent: Record<string, number>;
}

export interface Validation {
  id: string;
  recommendation_id: string;
  mode: string;
  status: string;
  stage: string;
  progress: number;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  environment: {
    node: string;
    gpus: { name: string }[];
    vllm_version: string;
    cpu: boolean;
    as_asked?: boolean;
  } | null;
  startup:
    | ({ predicted: Record<string, number | null>; error_percent: Record<string, number> } & Record<
        string,
        Json
      >)
    | null;
  load_points: LoadPoint[];
  knee: { max_num_seqs: number; requests_per_s: number; reason: string } | null;
  suggested_config: Config | null;
  comparison?: {
    starts_each: number;
    figures: {
      metric: string;
      defaults: number;
      recommended: number;
      ratio: number;
      outcome: string;
    }[];
  } | null;
  slo: {
    target: Record<string, number | string>;
    measured?: number;
    interval?: [number, number | null];
    predicted?: number | null;
    verdict: TargetVerdict;
  }[];
  verdict: string | null;
  failure: { stage: string; reason: string; log_tail: string } | null;
  command: string[];
  notes?: string[];
}

export interface Problem {
  title: string;
  status: number;
  detail: string;
  code: string;
  errors?: { pointer: string; message: string }[];
  request_id?: string;
}
