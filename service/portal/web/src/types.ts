// The nouns of the API that this page reads and writes, by the names that it uses for them.
import type { components, Json } from "./openapi";

type Schemas = components["schemas"];

export type { Json };
export type Config = Schemas["EngineConfig"];
export type Severity = Finding["severity"];
export type Source = Schemas["Source"];
export type Finding = Schemas["Finding"];
export type Decision = Schemas["Decision"];
export type Percentiles = Schemas["Percentiles"];
export type Memory = Schemas["MemoryBreakdown"];
export type Performance = Schemas["Performance"];
export type Outcome = Schemas["TargetOutcome"];
export type TargetVerdict = Outcome["verdict"];
export type Estimate = Schemas["Estimate"];
export type Target = Schemas["LatencyTarget"];
export type LatencyName = Target["metric"];
export type Slo = Schemas["Slo"];
export type Workload = Schemas["Workload"];
export type Lengths = NonNullable<Workload["prompt_tokens"]>;
export type Arrivals = NonNullable<Workload["arrivals"]>;
export type Model = Schemas["ModelRef"];
export type Hardware = Schemas["Hardware"];
export type TuningRequest = Schemas["TuningRequest"];
export type Understood = Schemas["UnderstoodRequest"];
export type Replicas = Schemas["Replicas"];
export type AllCopies = Schemas["AllCopies"];
export type ShortEstimate = Schemas["ShortEstimate"];
export type Alternative = Schemas["Alternative"];
export type Candidate = Schemas["Compared"];
export type RenderedFile = Schemas["RenderedFile"];
export type Recommendation = Schemas["Recommendation"];
export type Summary = Schemas["RecommendationSummary"];
export type ModelSummary = Schemas["ModelSummary"];
export type GpuSummary = Schemas["GpuSummary"];
export type PresetDescription = Schemas["PresetDescription"];
export type WorkerNode = Schemas["WorkerNode"];
export type WorkerList = Schemas["WorkerList"];
export type QueueState = Schemas["QueueState"];
export type LoadPoint = Schemas["LoadPoint"];
export type StartupFigures = Omit<Schemas["StartupFigures"], "schema_version">;
/** The service sends every field of a record. */
export type Validation = Required<Schemas["Validation"]>;
/** A problem of the service, or what the page makes of an answer that is none. */
export type Problem = Pick<Schemas["Problem"], "title" | "status" | "detail"> &
  Partial<Pick<Schemas["Problem"], "errors" | "request_id">> & { code: string };
