// How figures are written: three significant digits, units always beside them.
import type { Arrivals, Json, Lengths, Target } from "./types";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const significant = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

export const NONE = "–";

export function count(value: number | null | undefined): string {
  return value == null ? NONE : whole.format(value);
}

export function short(value: number | null | undefined): string {
  return value == null ? NONE : compact.format(value);
}

export function figure(value: number | null | undefined): string {
  if (value == null) return NONE;
  return Math.abs(value) >= 1000 ? whole.format(value) : significant.format(value);
}

/** What a part is called: a GPU, or a CPU where the answer is for one. */
export function device(part: string): string {
  return part === "CPU" ? "CPU" : "GPU";
}

/** So many devices. */
export function devices(number: number, part: string): string {
  const kind = device(part);
  return `${count(number)} ${kind}${number === 1 ? "" : "s"}`;
}

/** Milliseconds for people: seconds from one second on. */
export function duration(ms: number | null | undefined): string {
  if (ms == null) return NONE;
  return ms >= 1000 ? `${figure(ms / 1000)} s` : `${figure(ms)} ms`;
}

export function gib(value: number | null | undefined): string {
  if (value == null) return NONE;
  if (value === 0) return "0 GiB";
  return `${value.toFixed(value >= 100 ? 0 : value < 1 ? 2 : 1)} GiB`;
}

export function percent(value: number): string {
  return `${significant.format(value)} %`;
}

export function moment(iso: string): string {
  return new Date(iso).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

export function ago(iso: string): string {
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(iso)) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return moment(iso);
}

/** A setting's value as it would be typed. */
export function value(setting: Json | undefined): string {
  if (setting == null) return "vLLM decides";
  if (typeof setting === "boolean") return setting ? "on" : "off";
  if (typeof setting === "object") return JSON.stringify(setting);
  return String(setting);
}

export const METRICS: Record<string, string> = {
  ttft: "Time to first token",
  tpot: "Time per output token",
  itl: "Gap between tokens",
  e2el: "Whole answer",
};

export function quantile(percentile: number | string): string {
  return percentile === "mean" ? "mean" : `p${percentile}`;
}

export function target(item: Target): string {
  return `${METRICS[item.metric] ?? item.metric} ${quantile(item.percentile)} ≤ ${duration(item.limit_ms)}`;
}

export function lengths(item: Lengths | null | undefined): string {
  if (item == null) return NONE;
  if (typeof item === "number") return `${count(item)} tokens`;
  const n = (key: string) => count((item as Record<string, Json>)[key] as number);
  switch (item.kind) {
    case "fixed":
      return `${n("tokens")} tokens`;
    case "uniform":
      return `${n("low")} to ${n("high")} tokens`;
    case "lognormal":
      return `${n("mean")} tokens on average, ${n("p99")} at p99`;
    case "histogram":
      return "a histogram";
    default:
      return "measured samples";
  }
}

export function arrivals(item: Arrivals | null | undefined): string {
  if (!item) return NONE;
  const n = (key: string) => figure((item as Record<string, Json>)[key] as number);
  switch (item.kind) {
    case "poisson":
      return `${n("requests_per_s")} requests/s`;
    case "gamma":
      return `${n("requests_per_s")} requests/s, burstiness ${n("burstiness")}`;
    case "closed_loop":
      return `${n("max_concurrency")} requests in flight`;
    case "batch":
      return `${n("num_requests")} requests at once`;
    case "users":
      return `${n("users")} users`;
    default:
      return "a recorded trace";
  }
}

const SPOKEN: Record<string, string> = {
  requests_per_s: "Requests/s",
  min_requests_per_s: "Requests/s",
  goodput_requests_per_s: "Requests/s within targets",
  output_tokens_per_s: "Output tokens/s",
  min_output_tokens_per_s: "Output tokens/s",
  cost_per_million_output_tokens: "Cost per million output tokens",
};

/** A field's name in words. */
export function words(name: string): string {
  const latency = /^(ttft|tpot|itl|e2el)_ms_(mean|p\d+)$/.exec(name);
  if (latency) return `${METRICS[latency[1]!]} ${latency[2]}`;
  const plain = SPOKEN[name] ?? name.replaceAll("_", " ");
  return plain.charAt(0).toUpperCase() + plain.slice(1);
}

export function modelName(id: string): string {
  return id.split("/").pop() ?? id;
}
