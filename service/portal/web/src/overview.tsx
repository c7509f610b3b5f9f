// Memory, latency, the points to choose from, findings, and what was assumed.
import { useState } from "preact/hooks";
import { LatencyChart, MemoryBar, type Point, PointPlot, VERDICTS } from "./charts";
import { arrivals, count, device, devices, duration, figure, gib, lengths, METRICS, NONE, percent, value, words } from "./format";
import { Card, Findings, Pill } from "./parts";
import type { AllCopies, Candidate, Config, Estimate, LatencyName, Outcome, Recommendation } from "./types";

const LATENCIES: LatencyName[] = ["ttft", "tpot", "itl", "e2el"];

function MemoryCard({ record }: { record: Recommendation }) {
  const { memory } = record.estimate;
  if (!memory) return null;
  const band = memory.band["kv_cache_tokens"];
  const kind = device(record.request.hardware.gpu);
  return (
    <Card title={`Memory of one ${kind}`} note={`The ${kind} with the least room. The mark is the share that vLLM may use.`}>
      <MemoryBar memory={memory} name={record.estimate.fits ? "Recommended" : "The closest settings"} />
      {record.baseline.memory && <MemoryBar memory={record.baseline.memory} name="vLLM's defaults" legend={false} />}
      {memory.kv_cache_tokens > 0 && (
        <dl class="facts">
          <div>
            <dt>KV cache holds</dt>
            <dd>
              {count(memory.kv_cache_tokens)} tokens
              {band && (
                <small>
                  80 % band {count(band[0])} to {count(band[1])}
                </small>
              )}
            </dd>
          </div>
          <div>
            <dt>Requests of full length at once</dt>
            <dd>{figure(memory.max_concurrency)}</dd>
          </div>
          <div>
            <dt>Longest length that fits</dt>
            <dd>{count(memory.largest_max_model_len)} tokens</dd>
          </div>
        </dl>
      )}
    </Card>
  );
}

/** Targets that are not latencies of a drawn percentile: shown as a line each. */
export function OtherTargets({ outcomes }: { outcomes: Outcome[] }) {
  const others = outcomes.filter(({ target }) => !("percentile" in target) || target["percentile"] === "mean");
  if (!others.length) return null;
  return (
    <ul class="other-targets">
      {others.map(({ target, predicted, predicted_ms, verdict }) => {
        const metric = String(target["metric"]);
        const [tone, word] = VERDICTS[verdict];
        const shown = predicted_ms != null ? duration(predicted_ms) : figure(predicted);
        const limit = target["limit_ms"] != null ? duration(Number(target["limit_ms"])) : figure(Number(target["limit"]));
        return (
          <li key={metric}>
            <span>{METRICS[metric] ? `${METRICS[metric]} mean` : words(metric)}</span>
            <b>{shown}</b>
            <Pill tone={tone}>
              limit {limit} {word}
            </Pill>
          </li>
        );
      })}
    </ul>
  );
}

function LatencyCard({ record }: { record: Recommendation }) {
  const { performance, slo } = record.estimate;
  if (!performance) return null;
  return (
    <Card title="Latency against the targets" class="wide">
      <p class="note key">
        <span>
          <i class="dot" /> predicted
        </span>
        <span>
          <i class="band" /> 80 % band
        </span>
        <span>
          <i class="goal" /> target
        </span>
        {record.baseline.performance && (
          <span>
            <i class="ring" /> vLLM's defaults
          </span>
        )}
      </p>
      <div class="latencies">
        {LATENCIES.map((metric) => (
          <LatencyChart key={metric} metric={metric} performance={performance} other={record.baseline.performance} outcomes={slo} />
        ))}
      </div>
      <OtherTargets outcomes={slo} />
    </Card>
  );
}

interface OverviewProps {
  record: Recommendation;
  /** Opens the what-ifs with these settings. */
  onTry: (config: Config) => void;
}

interface Choice {
  point: Point;
  headline: string;
  text: string;
  config: Config;
  facts: [string, string][];
}

function choicesFromCompared(compared: Candidate[], { alternatives, request }: Recommendation): Choice[] {
  return compared.map((item, index) => {
    const other = alternatives.find((one) => JSON.stringify(one.config) === JSON.stringify(item.config));
    return {
      point: {
        id: String(index),
        label: item.label,
        x: item.answer_ms,
        y: item.capacity_output_tokens_per_s,
        kind: item.chosen ? "chosen" : !item.meets_slo ? "misses" : item.on_front ? "front" : "other",
      },
      headline: item.label,
      text: item.chosen
        ? "The recommendation."
        : (other?.trade_off ??
          (item.on_front ? "On the front: better in one direction, worse in another." : "Another point is at least as good in both directions.")),
      config: item.config,
      facts: [
        ["Capacity", `${figure(item.capacity_output_tokens_per_s)} output tokens/s`],
        ["Mean answer", duration(item.answer_ms)],
        [`${device(request.hardware.gpu)}s`, count(item.gpus)],
        ["Targets", item.meets_slo ? "held" : "one is missed"],
      ],
    };
  });
}

function choicesFromAlternatives(record: Recommendation): Choice[] {
  const { performance } = record.estimate;
  if (!performance) return [];
  const others = record.alternatives.filter(
    ({ estimate }) => estimate.e2el_ms_p95 != null && estimate.tpot_ms_p95 != null && estimate.ttft_ms_p95 != null,
  );
  return [
    {
      point: { id: "pick", label: "Recommended", x: performance.ttft_ms.p95, y: performance.tpot_ms.p95, kind: "chosen" },
      headline: "Recommended",
      text: "The recommendation.",
      config: record.config,
      facts: [["Copies", count(record.replicas.count)]],
    },
    ...others.map(
      (item): Choice => ({
        point: {
          id: item.label,
          label: item.label,
          x: item.estimate.ttft_ms_p95!,
          y: item.estimate.tpot_ms_p95!,
          kind: item.estimate.meets_slo === false ? "misses" : "other",
        },
        headline: item.label,
        text: item.trade_off,
        config: item.config,
        facts: [["Copies", count(item.replicas.count)]],
      }),
    ),
  ];
}

function TradeOffs({ record, onTry }: OverviewProps) {
  const compared = record.compared ?? [];
  const choices = compared.length
    ? choicesFromCompared(compared, record)
    : choicesFromAlternatives(record);
  const [selected, setSelected] = useState(choices.find((item) => item.point.kind === "chosen")?.point.id ?? "");
  if (choices.length < 2) return null;
  const shown = choices.find((item) => item.point.id === selected) ?? choices[0]!;
  const [xLabel, yLabel] = compared.length
    ? ["mean time of an answer", "output tokens/s at capacity"]
    : ["first token p95", "ms per token p95"];
  return (
    <Card
      title="Trade-offs"
      class="wide"
      note="Every layout that was compared, on equal terms. Up and to the left is better; the line joins those that none beats. Choose a point."
    >
      <div class="tradeoffs">
        <PointPlot points={choices.map((item) => item.point)} selected={selected} onSelect={setSelected} xLabel={xLabel} yLabel={yLabel} />
        <div class="choice" aria-live="polite">
          <h3>{shown.headline}</h3>
          <p>{shown.text}</p>
          <dl class="facts">
            {shown.facts.map(([name, text]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{text}</dd>
              </div>
            ))}
          </dl>
          {shown.point.kind !== "chosen" && (
            <>
              <Differences mine={record.config} other={shown.config} />
              <div class="row">
                <button type="button" class="button small" onClick={() => onTry(shown.config)}>
                  Try it in What if
                </button>
              </div>
            </>
          )}
        </div>
      </div>
      <p class="note key">
        <span>
          <i class="mark chosen" /> recommended
        </span>
        <span>
          <i class="mark front" /> on the front
        </span>
        <span>
          <i class="mark other" /> beaten
        </span>
        <span>
          <i class="mark misses" /> misses a target
        </span>
      </p>
    </Card>
  );
}

export function Differences({ mine, other }: { mine: Config; other: Config }) {
  const names = [...new Set([...Object.keys(mine), ...Object.keys(other)])].filter(
    (name) => value(mine[name]) !== value(other[name]),
  );
  if (!names.length) return <p class="faint">The same settings.</p>;
  return (
    <table class="compact">
      <thead>
        <tr>
          <th scope="col">Setting</th>
          <th scope="col">Here</th>
          <th scope="col">Recommended</th>
        </tr>
      </thead>
      <tbody>
        {names.map((name) => (
          <tr key={name}>
            <th scope="row">
              <code>{name}</code>
            </th>
            <td>{value(other[name])}</td>
            <td>{value(mine[name])}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

type Row = [string, (estimate: Estimate) => string];
export const FIGURES: Row[] = [
  ["First token, p50", (item) => duration(item.performance?.ttft_ms.p50)],
  ["First token, p95", (item) => duration(item.performance?.ttft_ms.p95)],
  ["First token, p99", (item) => duration(item.performance?.ttft_ms.p99)],
  ["Per token, p50", (item) => duration(item.performance?.tpot_ms.p50)],
  ["Per token, p95", (item) => duration(item.performance?.tpot_ms.p95)],
  ["Gap between tokens, p99", (item) => duration(item.performance?.itl_ms.p99)],
  ["Whole answer, p95", (item) => duration(item.performance?.e2el_ms.p95)],
  ["Requests/s within targets", (item) => figure(item.performance?.goodput_requests_per_s)],
  ["Output tokens/s", (item) => figure(item.performance?.output_tokens_per_s)],
  ["Running requests", (item) => figure(item.performance?.running_requests)],
  ["Waiting requests", (item) => figure(item.performance?.waiting_requests)],
  ["Preemptions per request", (item) => figure(item.performance?.preemptions_per_request)],
  ["KV cache in use", (item) => (item.performance ? percent(item.performance.kv_cache_usage * 100) : NONE)],
  ["KV cache", (item) => gib(item.memory?.kv_cache_gib)],
  ["KV cache tokens", (item) => count(item.memory?.kv_cache_tokens)],
  ["Requests of full length", (item) => figure(item.memory?.max_concurrency)],
];

export function FigureTable(props: { columns: [string, Estimate][] }) {
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Figures side by side">
      <table>
        <thead>
          <tr>
            <th scope="col">Figure</th>
            {props.columns.map(([name]) => (
              <th scope="col" class="num" key={name}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {FIGURES.map(([label, read]) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              {props.columns.map(([name, estimate]) => (
                <td class="num" key={name}>
                  {read(estimate)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Understood({ record }: { record: Recommendation }) {
  const { workload, assumptions } = record.request;
  return (
    <Card title="The question as it was understood">
      <dl class="facts">
        <div>
          <dt>Load</dt>
          <dd>{arrivals(workload.arrivals)}</dd>
        </div>
        <div>
          <dt>Prompts</dt>
          <dd>{lengths(workload.prompt_tokens)}</dd>
        </div>
        <div>
          <dt>Answers</dt>
          <dd>{lengths(workload.output_tokens)}</dd>
        </div>
      </dl>
      {assumptions.length > 0 && (
        <ul class="plain assumptions">
          {assumptions.map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function sharing({ all_copies: all, baseline_all_copies: others, request }: Recommendation): string {
  const copies = (item: AllCopies) =>
    `${item.count === 1 ? "one copy" : `${item.count} copies`} on ${devices(item.gpus, request.hardware.gpu)}`;
  if (!all || !others || (all.count === 1 && others.count === 1)) return "The same load on each.";
  return `One copy of each under its share of the load: recommended ${copies(all)}, defaults ${copies(others)}.`;
}

export function OverviewTab({ record, onTry }: OverviewProps) {
  const hasFigures = record.estimate.performance !== null;
  return (
    <div class="cards">
      <LatencyCard record={record} />
      <div class="stack">
        <MemoryCard record={record} />
        {hasFigures && <Understood record={record} />}
      </div>
      {hasFigures ? (
        <Card title="Recommended against vLLM's defaults" note={sharing(record)}>
          <FigureTable columns={[["Recommended", record.estimate], ["vLLM's defaults", record.baseline]]} />
        </Card>
      ) : (
        <Understood record={record} />
      )}
      <TradeOffs record={record} onTry={onTry} />
      {record.findings.length > 0 && (
        <Card title={`Findings (${record.findings.length})`} class="wide">
          <Findings findings={record.findings} />
        </Card>
      )}
      <p class="provenance faint">
        {Object.entries(record.provenance)
          .map(([name, text]) => `${name.replaceAll("_", " ")} ${text}`)
          .join(" · ")}
      </p>
    </div>
  );
}
