// The answer: verdict and headline first, then everything that stands behind it in tabs.
import { useEffect, useState } from "preact/hooks";
import { deleteRecommendation, getRecommendation } from "./api";
import { count, devices, duration, figure, modelName, moment, NONE, value } from "./format";
import { FilesTab } from "./files";
import { useLoaded } from "./hooks";
import { OverviewTab } from "./overview";
import { Copy, download, Failure, Labels, Pill, type Tone, Tabs, Waiting } from "./parts";
import { ProofTab } from "./proof";
import { SettingsTab } from "./settings";
import { WatchTab } from "./watch";
import { WhatIfTab } from "./whatif";
import type { AllCopies, Config, Estimate, Recommendation } from "./types";

export function verdictOf(record: Pick<Recommendation, "feasible" | "estimate">): [Tone, string] {
  if (!record.feasible) return ["bad", "Cannot be met"];
  const outcomes = record.estimate.slo.map((item) => item.verdict);
  if (outcomes.includes("missed")) return ["bad", "Misses a target"];
  if (outcomes.includes("uncertain")) return ["warn", "Met, but not certain"];
  return ["good", outcomes.length ? "Meets the targets" : "Runs"];
}

export function machine(record: Pick<Recommendation, "request">): string {
  const { gpu, gpus_per_node: perNode = 1, nodes = 1 } = record.request.hardware;
  return `${nodes > 1 ? `${nodes} × ` : ""}${perNode} × ${gpu}`;
}

function Kpi(props: { name: string; value: string; unit?: string; before?: string; note?: string }) {
  return (
    <div class="kpi">
      <dt>{props.name}</dt>
      <dd>
        <b>{props.value}</b> {props.unit && <span>{props.unit}</span>}
        <small>{props.before ? `vLLM defaults: ${props.before}` : (props.note ?? "")}</small>
      </dd>
    </div>
  );
}

function latencyOf(estimate: Estimate, metric: "ttft_ms" | "tpot_ms"): string {
  return duration(estimate.performance?.[metric].p95);
}

function Kpis({ record }: { record: Recommendation }) {
  const { estimate, baseline, replicas, all_copies: all, baseline_all_copies: others } = record;
  const pair = (read: (item: Estimate) => string) => ({
    value: read(estimate),
    before: baseline.fits ? read(baseline) : "do not start",
  });
  const sum = (write: (value: number | null | undefined) => string, key: keyof AllCopies) => ({
    value: write(all?.[key]),
    before: baseline.fits ? write(others?.[key]) : "do not start",
  });
  const on = devices(replicas.gpus, record.request.hardware.gpu);
  const copies = `${replicas.count} on ${on}`;
  return (
    <dl class="kpis">
      <Kpi name="First token, p95" {...pair((item) => latencyOf(item, "ttft_ms"))} />
      <Kpi name="Per token, p95" {...pair((item) => latencyOf(item, "tpot_ms"))} />
      <Kpi name="Output tokens/s" {...sum(figure, "output_tokens_per_s")} />
      <Kpi name="Requests/s" {...sum(figure, "requests_per_s")} />
      <Kpi name="KV cache tokens" {...sum(count, "kv_cache_tokens")} />
      {record.cost ? (
        <Kpi
          name="Cost per million tokens"
          value={figure(record.cost.per_million_output_tokens)}
          note={`${figure(record.cost.per_hour)} per hour, copies: ${copies}`}
        />
      ) : (
        <Kpi
          name="Copies"
          value={String(replicas.count)}
          unit={`on ${on}`}
          before={others && baseline.fits ? `${others.count} on ${others.gpus}` : undefined}
        />
      )}
    </dl>
  );
}

function Launch({ record }: { record: Recommendation }) {
  const compose = record.files.find((file) => file.path === "compose.yaml");
  const script = record.files.find((file) => file.path === "serve.sh");
  const defaults = record.baseline.defaults_applied;
  return (
    <section class="card launch" aria-label="Settings in short">
      <ConfigList config={record.config} defaults={defaults} />
      <div class="row">
        {script && <Copy text={script.content} label="Copy serve.sh" />}
        {compose && (
          <button type="button" class="button small primary" onClick={() => download(compose.path, compose.content, compose.media_type)}>
            Download compose.yaml
          </button>
        )}
        <a class="button small" href={`#/r/${record.id}/files`}>
          All files
        </a>
      </div>
    </section>
  );
}

export function ConfigList({ config, defaults }: { config: Config; defaults?: Config }) {
  return (
    <dl class="config">
      {Object.entries(config).map(([name, setting]) => (
        <div key={name}>
          <dt>
            <code>{name}</code>
          </dt>
          <dd>
            <b>{value(setting)}</b>
            {defaults && name in defaults && value(defaults[name]) !== value(setting) && (
              <small>default {value(defaults[name])}</small>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Obstacle({ record }: { record: Recommendation }) {
  if (!record.binding) return null;
  return (
    <section class="alert bad obstacle" aria-label="What stands in the way">
      <div>
        <strong>What stands in the way: {record.binding.constraint}</strong>
        <p>{record.binding.detail}</p>
      </div>
      {record.nearest && (
        <div>
          <strong>Nearest way: {record.nearest.change}</strong>
          <p>{record.nearest.detail}</p>
          {record.nearest.config && <ConfigList config={record.nearest.config} />}
          {(record.nearest.hardware || record.nearest.slo || record.nearest.workload || record.nearest.constraints || record.nearest.engine) && (
            <p class="row">
              <a class="button small" href={`#/?from=${record.id}&nearest`}>
                Ask for that instead
              </a>
            </p>
          )}
        </div>
      )}
    </section>
  );
}

function Head({ record }: { record: Recommendation }) {
  const [tone, verdict] = verdictOf(record);
  const { request } = record;
  const remove = async () => {
    if (!confirm("Delete this recommendation for good?")) return;
    await deleteRecommendation(record.id);
    location.hash = "#/history";
  };
  return (
    <header class="result-head">
      <div class="verdict-line">
        <Pill tone={tone}>{verdict}</Pill>
        <span class="faint">
          {request.workload.preset ?? "own workload"} · vLLM {request.engine.version ?? NONE} · {record.estimate.basis} ·{" "}
          {moment(record.created_at)}
        </span>
        <Labels labels={record.labels} />
      </div>
      <h1>
        {modelName(request.model.id)} <span class="on">on {machine(record)}</span>
      </h1>
      <p class="lead">{record.headline}</p>
      <div class="row">
        <a class="button small" href={`#/?from=${record.id}`}>
          Change the question
        </a>
        <a class="button small" href={`#/history?with=${record.id}`}>
          Compare
        </a>
        <Copy text={location.href} label="Copy link" />
        <button type="button" class="button small" onClick={remove}>
          Delete
        </button>
      </div>
    </header>
  );
}

const TABS = [
  { id: "overview", label: "Overview" },
  { id: "settings", label: "Settings" },
  { id: "what-if", label: "What if" },
  { id: "files", label: "Files" },
  { id: "proof", label: "Proof" },
  { id: "watch", label: "Watch" },
];

/** The tab that an address names; the first one where it names none that there is. */
export function knownTab(named: string | undefined): string {
  return TABS.find((tab) => tab.id === named)?.id ?? TABS[0]!.id;
}

interface PanelProps {
  tab: string;
  record: Recommendation;
  reload: () => void;
  tried: Config | null;
  onTry: (config: Config) => void;
}

function Panel({ tab, record, reload, tried, onTry }: PanelProps) {
  switch (tab) {
    case "settings":
      return <SettingsTab record={record} />;
    case "what-if":
      return <WhatIfTab record={record} start={tried ?? record.config} />;
    case "files":
      return <FilesTab record={record} />;
    case "proof":
      return <ProofTab record={record} reload={reload} />;
    case "watch":
      return <WatchTab record={record} />;
    default:
      return <OverviewTab record={record} onTry={onTry} />;
  }
}

export function ResultPage({ id, tab }: { id: string; tab: string }) {
  const loaded = useLoaded(() => getRecommendation(id), id);
  const [shown, setShown] = useState(tab);
  const [tried, setTried] = useState<Config | null>(null);
  useEffect(() => setShown(tab), [tab]);
  const record = loaded.value;
  useEffect(() => {
    document.title = record ? `${modelName(record.request.model.id)} · Setpoint` : "Setpoint";
  }, [record]);
  if (loaded.error)
    return (
      <div class="page">
        <h1>Recommendation</h1>
        <Failure error={loaded.error} again={loaded.reload} />
      </div>
    );
  if (!record)
    return (
      <div class="page">
        <h1>Recommendation</h1>
        <Waiting what="Loading it" />
      </div>
    );
  const select = (next: string) => {
    history.replaceState(null, "", `#/r/${id}${next === "overview" ? "" : `/${next}`}`);
    setShown(next);
  };
  return (
    <div class="page result">
      <Head record={record} />
      <Obstacle record={record} />
      {record.estimate.performance && <Kpis record={record} />}
      {record.estimate.fits && <Launch record={record} />}
      <Tabs label="Parts of the answer" tabs={TABS} selected={shown} onSelect={select}>
        <Panel
          tab={shown}
          record={record}
          reload={loaded.reload}
          tried={tried}
          onTry={(config) => {
            setTried(config);
            select("what-if");
          }}
        />
      </Tabs>
    </div>
  );
}
