// Two recommendations side by side.
import { useEffect } from "preact/hooks";
import { getRecommendation } from "./api";
import { MemoryBar } from "./charts";
import { arrivals, device, figure, lengths, modelName, moment, target, value } from "./format";
import { useLoaded } from "./hooks";
import { FigureTable } from "./overview";
import { Card, Failure, Labels, Pill, Waiting } from "./parts";
import { machine, verdictOf } from "./result";
import type { Recommendation } from "./types";

function Column({ record, name }: { record: Recommendation; name: string }) {
  const [tone, verdict] = verdictOf(record);
  return (
    <section class="card" aria-label={`Recommendation ${name}`}>
      <p class="row">
        <span class="letter">{name}</span>
        <Pill tone={tone}>{verdict}</Pill>
        <span class="faint">{moment(record.created_at)}</span>
        <Labels labels={record.labels} />
      </p>
      <h2>
        <a href={`#/r/${record.id}`}>
          {modelName(record.request.model.id)} on {machine(record)}
        </a>
      </h2>
      <p>{record.headline}</p>
    </section>
  );
}

type Line = [string, string, string];

function Lines({ lines, title, first }: { lines: Line[]; title: string; first: string }) {
  return (
    <Card title={title}>
      <div class="scroll" tabIndex={0} role="group" aria-label={title}>
        <table>
          <thead>
            <tr>
              <th scope="col">{first}</th>
              <th scope="col">A</th>
              <th scope="col">B</th>
            </tr>
          </thead>
          <tbody>
            {lines.map(([name, a, b]) => (
              <tr key={name} class={a === b ? "" : "differs"}>
                <th scope="row">{name}</th>
                <td>{a}</td>
                <td>{b}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function questionOf(record: Recommendation): [string, string][] {
  const { request } = record;
  return [
    ["Model", request.model.id],
    ["Hardware", machine(record)],
    ["Workload", request.workload.preset ?? "own"],
    ["Load", arrivals(request.workload.arrivals)],
    ["Prompts", lengths(request.workload.prompt_tokens)],
    ["Answers", lengths(request.workload.output_tokens)],
    ["Targets", (request.slo.targets ?? []).map(target).join("; ") || "none"],
    ["Objective", `${request.objective}, ${request.posture}`],
    ["vLLM", request.engine.version ?? ""],
  ];
}

function pair(a: [string, string][], b: [string, string][]): Line[] {
  return a.map(([name, text], index) => [name, text, b[index]?.[1] ?? ""]);
}

function settings(a: Recommendation, b: Recommendation): Line[] {
  const names = [...new Set([...Object.keys(a.config), ...Object.keys(b.config)])];
  return [
    ["copies", figure(a.replicas.count), figure(b.replicas.count)],
    ...names.map((name): Line => [name, value(a.config[name]), value(b.config[name])]),
  ];
}

export function ComparePage({ first, second }: { first: string; second: string }) {
  const loaded = useLoaded(() => Promise.all([getRecommendation(first), getRecommendation(second)]), `${first} ${second}`);
  useEffect(() => {
    document.title = "Compare · Setpoint";
  }, []);
  if (loaded.error)
    return (
      <div class="page">
        <h1>Compare</h1>
        <Failure error={loaded.error} again={loaded.reload} />
      </div>
    );
  if (!loaded.value)
    return (
      <div class="page">
        <h1>Compare</h1>
        <Waiting what="Loading both" />
      </div>
    );
  const [a, b] = loaded.value;
  const kinds = new Set([a, b].map((record) => device(record.request.hardware.gpu)));
  return (
    <div class="page">
      <h1>Compare</h1>
      <div class="cards">
        <Column record={a} name="A" />
        <Column record={b} name="B" />
        <Lines title="Settings" first="Setting" lines={settings(a, b)} />
        <Lines title="Questions" first="Part" lines={pair(questionOf(a), questionOf(b))} />
        <Card title="Figures of one copy">
          <FigureTable columns={[["A", a.estimate], ["B", b.estimate]]} />
        </Card>
        <Card title={`Memory of one ${[...kinds].join(" or ")}`}>
          {a.estimate.memory && <MemoryBar memory={a.estimate.memory} name="A" />}
          {b.estimate.memory && <MemoryBar memory={b.estimate.memory} name="B" />}
        </Card>
      </div>
    </div>
  );
}
