// What was asked before, with labels; two of them can be compared.
import { useEffect, useState } from "preact/hooks";
import { listRecommendations } from "./api";
import { modelName, moment } from "./format";
import { useRested } from "./hooks";
import { Failure, Labels, Pill, Waiting } from "./parts";
import type { Summary } from "./types";

function queryOf(filters: { model: string; gpu: string; label: string }, cursor: string | null): URLSearchParams {
  const query = new URLSearchParams({ limit: "30" });
  if (filters.model.trim()) query.set("model", filters.model.trim());
  if (filters.gpu.trim()) query.set("gpu", filters.gpu.trim());
  for (const label of filters.label.split(",").map((part) => part.trim()).filter(Boolean)) query.append("label", label);
  if (cursor) query.set("cursor", cursor);
  return query;
}

function Row(props: { item: Summary; marked: boolean; full: boolean; onMark: () => void; onLabel: (label: string) => void }) {
  const { item } = props;
  return (
    <li class={props.marked ? "marked" : ""}>
      <label class="mark">
        <input type="checkbox" checked={props.marked} disabled={!props.marked && props.full} onChange={props.onMark} />
        <span class="offscreen">
          Compare {modelName(item.model)} on {item.gpu}, {moment(item.created_at)}
        </span>
      </label>
      <a href={`#/r/${item.id}`}>
        <span class="title">
          <b>{modelName(item.model)}</b> on {item.gpu}
        </span>
        <span class="headline">{item.headline}</span>
      </a>
      <span class="side">
        <Pill tone={item.feasible ? "good" : "bad"}>{item.feasible ? "can be met" : "cannot be met"}</Pill>
        <small>{moment(item.created_at)}</small>
        <span>
          {Object.keys(item.labels).length > 0 && <Labels labels={item.labels} />}
        </span>
      </span>
    </li>
  );
}

export function HistoryPage({ query }: { query: URLSearchParams }) {
  const [filters, setFilters] = useState({ model: "", gpu: "", label: query.get("label") ?? "" });
  const [items, setItems] = useState<Summary[] | null>(null);
  const [cursor, setCursor] = useState<string | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [marked, setMarked] = useState<string[]>(query.get("with") ? [query.get("with")!] : []);
  const rested = useRested(filters, 250);

  const load = async (from: string | null, before: Summary[]) => {
    try {
      const page = await listRecommendations(queryOf(rested, from));
      setItems([...before, ...page.items]);
      setCursor(page.next_cursor);
      setError(null);
    } catch (caught) {
      setError(caught as Error);
    }
  };
  useEffect(() => {
    document.title = "History · Setpoint";
    void load(null, []);
  }, [JSON.stringify(rested)]);

  const mark = (id: string) => setMarked(marked.includes(id) ? marked.filter((other) => other !== id) : [...marked, id]);
  const filter = (name: keyof typeof filters, label: string, placeholder: string) => (
    <div class="field">
      <label for={`filter-${name}`}>{label}</label>
      <input
        id={`filter-${name}`}
        type="search"
        placeholder={placeholder}
        value={filters[name]}
        onInput={(event) => setFilters({ ...filters, [name]: event.currentTarget.value })}
      />
    </div>
  );
  return (
    <div class="page">
      <h1>History</h1>
      <form class="filters" role="search" aria-label="Filter recommendations" onSubmit={(event) => event.preventDefault()}>
        {filter("model", "Model id", "meta-llama/Llama-3.1-8B-Instruct")}
        {filter("gpu", "GPU", "H100-SXM5-80GB")}
        {filter("label", "Labels", "team=search, env")}
      </form>
      {error && <Failure error={error} />}
      {!items && !error && <Waiting what="Loading the history" />}
      {items && (
        <div class="compare-bar">
          <span role="status">{marked.length === 0 ? "Mark two to compare them." : `${marked.length} of 2 marked.`}</span>
          {marked.length === 2 && (
            <a class="button small primary" href={`#/compare?a=${marked[0]}&b=${marked[1]}`}>
              Compare the two
            </a>
          )}
          {marked.length > 0 && (
            <button type="button" class="button small" onClick={() => setMarked([])}>
              Clear
            </button>
          )}
        </div>
      )}
      {items?.length === 0 && <p class="empty-state">Nothing matches. A recommendation appears here as soon as it is made.</p>}
      <ul class="history">
        {items?.map((item) => (
          <Row
            key={item.id}
            item={item}
            marked={marked.includes(item.id)}
            full={marked.length >= 2}
            onMark={() => mark(item.id)}
            onLabel={(label) => setFilters({ ...filters, label })}
          />
        ))}
      </ul>
      {cursor && (
        <button type="button" class="button" onClick={() => load(cursor, items ?? [])}>
          Older ones
        </button>
      )}
    </div>
  );
}
