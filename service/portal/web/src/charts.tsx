// Charts: memory of a device, latencies against targets, points to choose from, prediction errors.
import { scaleLinear, scaleLog } from "d3-scale";
import { useEffect, useRef, useState } from "preact/hooks";
import { duration, figure, gib, METRICS, quantile, short } from "./format";
import { Pill, type Tone } from "./parts";
import type { LatencyName, Memory, Outcome, Percentiles, Performance, TargetVerdict } from "./types";

const SEGMENTS: [keyof Memory, string, string][] = [
  ["weights_gib", "Weights", "weights"],
  ["activation_gib", "Activations", "activation"],
  ["non_torch_gib", "CUDA and libraries", "other"],
  ["cuda_graphs_gib", "CUDA graphs", "graphs"],
  ["kv_cache_gib", "KV cache", "kv"],
];

/** What one device's memory is used for, against its total; beyond the total when it does not fit. */
export function MemoryBar({ memory, name, legend = true }: { memory: Memory; name: string; legend?: boolean }) {
  const parts = SEGMENTS.map(([key, label, kind]) => ({
    label,
    kind,
    size: Math.max(0, memory[key] as number),
  }));
  const end = parts.reduce((sum, part) => sum + part.size, 0);
  const scale = scaleLinear([0, Math.max(memory.total_gib, end)], [0, 100]);
  const place = placing(parts.map((part) => part.size), scale);
  const fits = end <= memory.total_gib;
  const text = parts.map((part) => `${part.label} ${gib(part.size)}`).join(", ");
  return (
    <figure class="membar">
      <figcaption>
        <span>{name}</span>
        <span class="faint">
          {fits ? `${gib(memory.total_gib)} in all` : `${gib(end)} needed, ${gib(memory.total_gib)} there`}
        </span>
      </figcaption>
      <div class="track" role="img" aria-label={`${name}: ${text}, of ${gib(memory.total_gib)}`}>
        {parts.map((part) => (
          <span key={part.kind} class={`seg ${part.kind}`} style={{ width: place.width(part.size) }} title={`${part.label}: ${gib(part.size)}`} />
        ))}
        <span class="limit" style={{ left: place.mark(memory.requested_gib) }} title={`vLLM's share: ${gib(memory.requested_gib)}`} />
        {!fits && <span class="limit total" style={{ left: place.mark(memory.total_gib) }} />}
      </div>
      {legend && <MemoryLegend memory={memory} fits={fits} />}
    </figure>
  );
}

/** Between two parts, as in the style sheet. */
const GAP_PX = 2;

/** Widths of parts and places of marks, gaps counted: a mark beyond a part is drawn beyond it. */
function placing(sizes: number[], percent: (size: number) => number) {
  const ends = sizes.map((_, at) => sizes.slice(0, at + 1).reduce((sum, size) => sum + size, 0));
  const gaps = sizes.length - 1;
  const lost = (size: number) => (percent(size) / 100) * gaps * GAP_PX;
  const before = (size: number) => Math.min(gaps, ends.filter((end) => end <= size).length) * GAP_PX;
  return {
    width: (size: number) => `calc(${percent(size)}% - ${lost(size)}px)`,
    mark: (size: number) => `calc(${percent(size)}% + ${before(size) - lost(size)}px)`,
  };
}

function MemoryLegend({ memory, fits }: { memory: Memory; fits: boolean }) {
  return (
    <ul class="legend">
      {SEGMENTS.map(([key, label, kind]) => (
        <li key={kind}>
          <span class={`swatch ${kind}`} aria-hidden="true" />
          {label} <b>{gib(Math.max(0, memory[key] as number))}</b>
        </li>
      ))}
      <li>
        <span class="swatch limit" aria-hidden="true" />
        vLLM's share <b>{gib(memory.requested_gib)}</b>
      </li>
      {!fits && (
        <li>
          <span class="swatch limit total" aria-hidden="true" />
          all there is <b>{gib(memory.total_gib)}</b>
        </li>
      )}
    </ul>
  );
}

const QUANTILES = ["p50", "p90", "p95", "p99"] as const;
export const VERDICTS: Record<TargetVerdict, [Tone, string]> = {
  met: ["good", "met"],
  missed: ["bad", "missed"],
  uncertain: ["warn", "not certain"],
};

interface Row {
  name: string;
  at: number;
  /** Where the value lies with 80 % confidence. */
  band?: [number, number];
  /** Another value to compare with, and what it is. */
  ring?: number;
  goal?: number;
  verdict?: TargetVerdict;
}

/** Values on one axis, a row each: a dot with its band, a ring to compare with, a mark to meet. */
function RowChart({ title, rows, ringName }: { title: string; rows: Row[]; ringName: string }) {
  const reach = ({ at, band, ring = 0, goal = 0 }: Row) =>
    Math.max(at, Math.min(band?.[1] ?? at, 3 * at), Math.min(ring, 3 * at), goal * 1.05);
  const scale = scaleLinear([0, Math.max(...rows.map(reach))], [0, 100]).nice(3).clamp(true);
  const ticks = scale.ticks(3);
  const end = scale.domain()[1]!;
  return (
    <figure class="latency">
      <figcaption>{title}</figcaption>
      <div class="rows">
        {rows.map((row) => (
          <div class="row" key={row.name}>
            <span class="name">{row.name}</span>
            <span class="track" aria-hidden="true">
              {ticks.map((tick) => (
                <i key={tick} class="grid" style={{ left: `${scale(tick)}%` }} />
              ))}
              {row.band && (
                <i class="band" style={{ left: `${scale(row.band[0])}%`, width: `${scale(row.band[1]) - scale(row.band[0])}%` }} />
              )}
              {row.ring != null && <i class={row.ring > end ? "ring off" : "ring"} style={{ left: `${scale(row.ring)}%` }} />}
              <i class={`dot ${row.verdict ?? ""}`} style={{ left: `${scale(row.at)}%` }} />
              {row.goal != null && <i class="goal" style={{ left: `${scale(row.goal)}%` }} />}
            </span>
            <span class="value">
              <b>{duration(row.at)}</b>
              {row.band && (
                <small class="offscreen">
                  , 80 % band {duration(row.band[0])} to {duration(row.band[1])}
                </small>
              )}
              {row.ring != null && (
                <small class="offscreen">
                  , {ringName} {duration(row.ring)}
                </small>
              )}
            </span>
            <span class="verdict">
              {row.verdict && (
                <Pill tone={VERDICTS[row.verdict][0]}>
                  ≤ {duration(row.goal)} {VERDICTS[row.verdict][1]}
                </Pill>
              )}
            </span>
          </div>
        ))}
        <div class="axis" aria-hidden="true">
          <span class="track">
            {ticks.map((tick) => (
              <i key={tick} style={{ left: `${scale(tick)}%` }}>
                {tick === 0 ? "0" : duration(tick)}
              </i>
            ))}
          </span>
        </div>
      </div>
    </figure>
  );
}

/** A predicted latency against its targets, with what vLLM's defaults would give as rings. */
export function LatencyChart(props: {
  metric: LatencyName;
  performance: Performance;
  other?: Performance | null;
  outcomes: Outcome[];
}) {
  const { metric, performance } = props;
  const rows = QUANTILES.map((name): Row => {
    const outcome = props.outcomes.find(
      ({ target }) => target["metric"] === metric && quantile(target["percentile"] ?? "") === name,
    );
    return {
      name,
      at: performance[`${metric}_ms`][name],
      band: performance.band[`${metric}_ms_${name}`] as [number, number] | undefined,
      ring: props.other?.[`${metric}_ms`][name],
      goal: outcome?.target["limit_ms"] as number | undefined,
      verdict: outcome?.verdict,
    };
  });
  return <RowChart title={METRICS[metric]!} rows={rows} ringName="vLLM's defaults" />;
}

/** A measured latency, with the prediction as rings. */
export function MeasuredChart(props: { metric: LatencyName; measured: Percentiles; predicted: Record<string, number> }) {
  const rows = QUANTILES.map(
    (name): Row => ({ name, at: props.measured[name], ring: props.predicted[`${props.metric}_ms_${name}`] }),
  );
  return <RowChart title={METRICS[props.metric]!} rows={rows} ringName="predicted" />;
}

function useWidth<T extends Element>() {
  const element = useRef<T>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(entry!.contentRect.width));
    observer.observe(element.current!);
    return () => observer.disconnect();
  }, []);
  return [element, width] as const;
}

export interface Point {
  id: string;
  label: string;
  x: number;
  y: number;
  kind: "chosen" | "front" | "other" | "misses";
}

const HEIGHT = 300;
const PAD = { left: 58, right: 24, top: 16, bottom: 44 };

/** Points to choose from; each is a button, and the front is joined by a line. */
export function PointPlot(props: {
  points: Point[];
  selected: string;
  onSelect: (id: string) => void;
  xLabel: string;
  yLabel: string;
}) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const within = props.points.filter((point) => point.kind !== "misses");
  const framed = within.length > 1 ? within : props.points;
  const xs = framed.map((point) => point.x);
  const ys = framed.map((point) => point.y);
  const x = axis(xs).range([PAD.left, Math.max(PAD.left + 1, width - PAD.right)]);
  const y = axis(ys).range([HEIGHT - PAD.bottom, PAD.top]);
  const front = props.points
    .filter((point) => point.kind === "chosen" || point.kind === "front")
    .sort((a, b) => a.x - b.x);
  const order = (kind: Point["kind"]) => ["misses", "other", "front", "chosen"].indexOf(kind);
  const drawn = [...props.points].sort((a, b) => order(a.kind) - order(b.kind));
  return (
    <div class="plot" ref={frame}>
      {width > 0 && (
        <svg width={width} height={HEIGHT} role="group" aria-label={`${props.yLabel} against ${props.xLabel}`}>
          {ticksOf(y, 5).map((tick) => (
            <g key={tick} class="tick">
              <line x1={PAD.left} x2={width - PAD.right} y1={y(tick)} y2={y(tick)} />
              <text x={PAD.left - 8} y={y(tick)} dy="0.32em" text-anchor="end">
                {short(tick)}
              </text>
            </g>
          ))}
          {ticksOf(x, Math.max(2, Math.floor(width / 120))).map((tick) => (
            <g key={tick} class="tick">
              <line y1={PAD.top} y2={HEIGHT - PAD.bottom} x1={x(tick)} x2={x(tick)} />
              <text x={x(tick)} y={HEIGHT - PAD.bottom + 16} text-anchor="middle">
                {duration(tick)}
              </text>
            </g>
          ))}
          <text class="axis-name" x={width - PAD.right} y={HEIGHT - 8} text-anchor="end">
            {props.xLabel} →
          </text>
          <text class="axis-name" x={PAD.left} y={11}>
            ↑ {props.yLabel}
          </text>
          {front.length > 1 && (
            <polyline class="front-line" points={front.map((point) => `${x(point.x)},${y(point.y)}`).join(" ")} />
          )}
          {drawn.map((point) => (
            <g
              key={point.id}
              class={`point ${point.kind}`}
              role="button"
              tabindex={0}
              aria-pressed={point.id === props.selected}
              aria-label={`${point.label}: ${figure(point.y)} ${props.yLabel}, ${duration(point.x)} ${props.xLabel}`}
              transform={`translate(${x(point.x)},${y(point.y)})`}
              onClick={() => props.onSelect(point.id)}
              onKeyDown={(event) => {
                if (event.key !== "Enter" && event.key !== " ") return;
                event.preventDefault();
                props.onSelect(point.id);
              }}
            >
              <circle class="hit" r="16" />
              <circle class="halo" r="11" />
              <circle class="mark" r={point.kind === "chosen" ? 7 : 5.5} />
            </g>
          ))}
        </svg>
      )}
    </div>
  );
}

/**
 * A linear axis from the lowest to the highest value with some air; logarithmic over a decade.
 * What lies outside (a hopeless layout) is drawn at the edge.
 */
function axis(values: number[]) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  if (low > 0 && high / low > 12) return scaleLog([low / 1.4, high * 1.4], [0, 1]).clamp(true);
  const air = (high - low || high || 1) * 0.15;
  return scaleLinear([Math.max(0, low - air), high + air], [0, 1]).clamp(true);
}

function ticksOf(scale: ReturnType<typeof axis>, wanted: number): number[] {
  const ticks = scale.ticks(wanted);
  if (!("base" in scale)) return ticks;
  // A logarithmic scale offers every digit of a decade.
  const few = ticks.filter((tick) => /^[125]/.test(String(Number(tick.toPrecision(1)) / 10 ** Math.floor(Math.log10(tick)))));
  return few.length > wanted * 2 ? few.filter((tick) => Math.log10(tick) % 1 === 0) : few;
}

const ERROR_RANGE = 50;

/** How far a prediction is off the measurement: left of the middle too low, right too high. */
export function ErrorBar({ percent: error }: { percent: number | null | undefined }) {
  if (error == null) return <span class="faint">–</span>;
  const scale = scaleLinear([-ERROR_RANGE, ERROR_RANGE], [0, 100]).clamp(true);
  const [from, to] = [Math.min(scale(0), scale(error)), Math.max(scale(0), scale(error))];
  const tone = Math.abs(error) <= 10 ? "good" : Math.abs(error) <= 25 ? "warn" : "bad";
  return (
    <span class="errorbar">
      <span class="track" aria-hidden="true">
        <i class={tone} style={{ left: `${from}%`, width: `${to - from}%` }} />
        <i class="zero" />
      </span>
      <span>
        {error > 0 ? "+" : ""}
        {figure(error)} %
      </span>
    </span>
  );
}
