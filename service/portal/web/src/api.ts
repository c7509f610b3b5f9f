// Calls of the public API, and nothing else: every figure on this page comes from one of them.
import type {
  Estimate,
  GpuSummary,
  ModelSummary,
  PresetDescription,
  Problem,
  Recommendation,
  Summary,
  TuningRequest,
  Validation,
  WorkerList,
} from "./types";

const KEY = "setpoint-api-key";

/** A refusal of the service (RFC 9457), or the network's. */
export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail || problem.title);
  }
}

export function apiKey(): string {
  return sessionStorage.getItem(KEY) ?? "";
}

/** Keeps the key for this tab only. */
export function setApiKey(key: string): void {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

function headers(extra: Record<string, string> = {}): Record<string, string> {
  const key = apiKey();
  return { Accept: "application/json", ...(key && { Authorization: `Bearer ${key}` }), ...extra };
}

async function send(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError({
      title: "The service cannot be reached",
      status: 0,
      detail: "The service cannot be reached. Is it still running?",
      code: "unreachable",
    });
  }
  if (response.ok) return response;
  throw new ApiError(await readProblem(response));
}

async function readProblem(response: Response): Promise<Problem> {
  const fallback = {
    title: response.statusText || "Request refused",
    status: response.status,
    detail: `The service answered ${response.status}.`,
    code: "unknown",
  };
  try {
    return { ...fallback, ...((await response.json()) as Partial<Problem>) };
  } catch {
    return fallback;
  }
}

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await send(path, { headers: headers(), signal });
  return (await response.json()) as T;
}

async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const response = await send(path, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
    signal,
  });
  return (await response.json()) as T;
}

const once = new Map<string, Promise<unknown>>();

/** Reads a catalogue once per visit; a failure is not kept. */
function catalogue<T>(path: string): Promise<T> {
  const known = once.get(path) as Promise<T> | undefined;
  if (known) return known;
  const asked = get<T>(path);
  asked.catch(() => once.delete(path));
  once.set(path, asked);
  return asked;
}

export const findModels = async (text: string, signal?: AbortSignal) =>
  (
    await get<{ items: ModelSummary[] }>(
      `/models?limit=30${text ? `&q=${encodeURIComponent(text)}` : ""}`,
      signal,
    )
  ).items;
export const listGpus = async () => (await catalogue<{ items: GpuSummary[] }>("/gpus")).items;
export const listPresets = async () =>
  (await catalogue<{ items: PresetDescription[] }>("/presets")).items;
export const listVersions = async () =>
  (
    await catalogue<{ items: { version: string; supported: boolean; newest: boolean }[] }>(
      "/engine-versions",
    )
  ).items;
export const getWorkers = () => get<WorkerList>("/workers");
export const listWorkers = async () => (await getWorkers()).items;

export const recommend = (request: TuningRequest) =>
  post<Recommendation>("/recommendations", request);
export const getRecommendation = (id: string) =>
  get<Recommendation>(`/recommendations/${encodeURIComponent(id)}`);
export const listRecommendations = (query: URLSearchParams) =>
  get<{ items: Summary[]; next_cursor: string | null }>(`/recommendations?${query}`);
export const estimate = (request: unknown, signal: AbortSignal) =>
  post<Estimate>("/estimates", request, signal);

export async function deleteRecommendation(id: string): Promise<void> {
  await send(`/recommendations/${encodeURIComponent(id)}`, {
    method: "DELETE",
    headers: headers(),
  });
}

export const startValidation = (id: string, plan: unknown) =>
  post<Validation>(`/recommendations/${encodeURIComponent(id)}/validations`, plan);
export const getValidation = (id: string) =>
  get<Validation>(`/validations/${encodeURIComponent(id)}`);

export async function cancelValidation(id: string): Promise<void> {
  await send(`/validations/${encodeURIComponent(id)}`, { method: "DELETE", headers: headers() });
}

const RECONNECT_MS = 2000;

/**
 * Calls `onEvent` for every server-sent event of a validation until the service ends the stream.
 *
 * Read with fetch instead of EventSource, which cannot carry a key; a lost connection resumes
 * after the last event that arrived.
 */
export async function followValidation(
  id: string,
  onEvent: (name: string) => void,
  signal: AbortSignal,
): Promise<void> {
  let last = "";
  while (!signal.aborted) {
    const response = await send(`/validations/${encodeURIComponent(id)}/events`, {
      headers: headers({ Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) }),
      signal,
    });
    try {
      for await (const event of readEvents(response)) {
        last = event.id || last;
        onEvent(event.name);
      }
      return;
    } catch (error) {
      if (signal.aborted) return;
      console.warn("the stream of events broke off; resuming", error);
      await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
    }
  }
}

async function* readEvents(response: Response): AsyncGenerator<{ id: string; name: string }> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const field = (name: string) =>
        block.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? "";
      if (field("data")) yield { id: field("id"), name: field("event") || "message" };
    }
  }
}
