// A caller with generated types: asks, reads back, and is refused. Prints what it saw.
import createClient from "openapi-fetch";
import type { components, paths } from "./setpoint";

type Request = components["schemas"]["TuningRequest"];

declare const process: { argv: string[] };
const [baseUrl, key] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

const asked = (model: string): Request => ({
  model: { id: model },
  hardware: { gpu: "H100" },
  workload: { preset: "chat", arrivals: { kind: "poisson", requests_per_s: 4 } },
  slo: { targets: [{ metric: "ttft", percentile: 95, limit_ms: 500 }] },
});

const made = await client.POST("/recommendations", { body: asked("Qwen/Qwen3-8B") });
if (!made.data) throw new Error(made.error.detail);
const path = { recommendation_id: made.data.id };
const read = await client.GET("/recommendations/{recommendation_id}", { params: { path } });
// It can be had as Markdown too, which is a text.
if (!read.data || typeof read.data === "string") throw new Error(read.error?.detail);
const file = await client.GET("/recommendations/{recommendation_id}/files/{file_path}", {
  params: { path: { ...path, file_path: "serve.sh" } },
  parseAs: "text",
});
const page = await client.GET("/recommendations", { params: { query: { limit: 1 } } });
const refused = await client.POST("/recommendations", { body: asked("no/body") });
if (!refused.error) throw new Error("nobody has this model");

const arrivals = read.data.request.workload.arrivals;
if (arrivals?.kind !== "poisson") throw new Error("another kind of arrivals");
console.log(
  JSON.stringify({
    same: JSON.stringify(read.data) === JSON.stringify(made.data),
    id: read.data.id,
    rate: arrivals.requests_per_s,
    settings: read.data.config,
    file: file.data,
    listed: page.data?.items.map((item) => item.id),
    problem: [refused.response.status, refused.error.code, refused.error.errors?.[0]?.pointer],
  }),
);
