// Small pieces that every view is made of.
import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";
import { useUniqueId } from "./hooks";
import type { Finding, Severity, Source } from "./types";

export type Tone = "good" | "warn" | "bad" | "plain" | "info";

export function Pill({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`pill ${tone}`}>{children}</span>;
}

export function Card(props: {
  title: string;
  note?: ComponentChildren;
  actions?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}) {
  const id = useUniqueId("card");
  return (
    <section class={`card ${props.class ?? ""}`} aria-labelledby={id}>
      <header class="card-head">
        <h2 id={id}>{props.title}</h2>
        {props.actions}
      </header>
      {props.note && <p class="note">{props.note}</p>}
      {props.children}
    </section>
  );
}

/** Asks the frame to open the dialog for the key. */
export const KEY_WANTED = "setpoint-key-wanted";

export function Failure({ error, again }: { error: Error; again?: () => void }) {
  const problem = error instanceof ApiError ? error.problem : null;
  return (
    <div class="alert bad" role="alert">
      <strong>{problem?.title ?? "Something went wrong"}</strong>
      <p>{error.message}</p>
      {problem?.request_id && <p class="faint">Request id {problem.request_id}</p>}
      {problem?.status === 401 && (
        <button type="button" class="button small primary" onClick={() => dispatchEvent(new Event(KEY_WANTED))}>
          Enter an API key
        </button>
      )}
      {again && (
        <button type="button" class="button small" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Waiting({ what }: { what: string }) {
  return (
    <p class="waiting" role="status">
      <span class="spinner" aria-hidden="true" /> {what}
    </p>
  );
}

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyThroughSelection(text);
  }
}

/** Pages served without TLS from another host have no clipboard interface. */
function copyThroughSelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [state, setState] = useState<"" | "done" | "failed">("");
  useEffect(() => {
    if (!state) return;
    const timer = setTimeout(() => setState(""), 1600);
    return () => clearTimeout(timer);
  }, [state]);
  return (
    <button
      type="button"
      class="button small"
      onClick={async () => setState((await copyText(text)) ? "done" : "failed")}
    >
      <span aria-live="polite">
        {state === "done" ? "Copied" : state === "failed" ? "Select and copy by hand" : label}
      </span>
    </button>
  );
}

/** Saves a text under a name, from memory: the page needs no further request for it. */
export function download(name: string, content: string, mediaType: string): void {
  const address = URL.createObjectURL(new Blob([content], { type: mediaType }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

export interface Tab {
  id: string;
  label: ComponentChildren;
}

/** Tabs as the ARIA practices describe them: arrows move, the panel follows. */
export function Tabs(props: {
  label: string;
  tabs: Tab[];
  selected: string;
  onSelect: (id: string) => void;
  small?: boolean;
  children: ComponentChildren;
}) {
  const id = useUniqueId("tabs");
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => showTab(list.current), [props.selected]);
  const move = (event: TargetedKeyboardEvent<HTMLDivElement>) => {
    const at = props.tabs.findIndex((tab) => tab.id === props.selected);
    const last = props.tabs.length - 1;
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
    if (next == null) return;
    event.preventDefault();
    const to = props.tabs[(next + last + 1) % (last + 1)]!;
    props.onSelect(to.id);
    list.current?.querySelector<HTMLElement>(`#${id}-${cssName(to.id)}`)?.focus();
  };
  return (
    <>
      <div
        ref={list}
        class={props.small ? "tabs small" : "tabs"}
        role="tablist"
        aria-label={props.label}
        onKeyDown={move}
      >
        {props.tabs.map((tab) => (
          <button
            key={tab.id}
            id={`${id}-${cssName(tab.id)}`}
            type="button"
            role="tab"
            aria-selected={tab.id === props.selected}
            aria-controls={`${id}-panel`}
            tabIndex={tab.id === props.selected ? 0 : -1}
            onClick={() => props.onSelect(tab.id)}
          >
            {tab.label}
          </button>
        ))}
      </div>
      <div
        id={`${id}-panel`}
        role="tabpanel"
        tabIndex={0}
        aria-labelledby={`${id}-${cssName(props.selected)}`}
      >
        {props.children}
      </div>
    </>
  );
}

/** On narrow screens the tabs scroll: brings the selected one into view, and nothing else. */
function showTab(list: HTMLDivElement | null): void {
  const tab = list?.querySelector<HTMLElement>('[aria-selected="true"]');
  if (!list || !tab) return;
  list.scrollLeft = tab.offsetLeft - list.offsetLeft - (list.clientWidth - tab.offsetWidth) / 2;
}

function cssName(text: string): string {
  return text.replace(/[^A-Za-z0-9-]/g, "-");
}

const TONES: Record<Severity, Tone> = { error: "bad", warning: "warn", note: "info" };
const WORDS: Record<Severity, string> = { error: "Error", warning: "Warning", note: "Note" };

export function Findings({ findings }: { findings: Finding[] }) {
  const order: Severity[] = ["error", "warning", "note"];
  const sorted = [...findings].sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
  return (
    <ul class="findings">
      {sorted.map((finding) => (
        <li key={finding.rule + finding.message}>
          <div class="finding-head">
            <Pill tone={TONES[finding.severity]}>{WORDS[finding.severity]}</Pill>
            {finding.setting && <code>{finding.setting}</code>}
            <span class="faint">{finding.rule}</span>
          </div>
          <p>{finding.message}</p>
          {finding.suggestion && <p class="suggestion">{finding.suggestion}</p>}
          <Sources sources={finding.source ?? []} />
        </li>
      ))}
    </ul>
  );
}

export function Sources({ sources }: { sources: Source[] }) {
  if (!sources.length) return null;
  return (
    <p class="sources">
      <span class="faint">Source: </span>
      {sources.map((source, index) => (
        <span key={source.title + source.where}>
          {index > 0 && "; "}
          {source.title}, <span class="where">{source.where}</span>
        </span>
      ))}
    </p>
  );
}

export function Labels({ labels }: { labels: Record<string, string> }) {
  return (
    <>
      {Object.entries(labels).map(([name, text]) => (
        <span class="label" key={name}>
          {name}
          {text && <b>{text}</b>}
        </span>
      ))}
    </>
  );
}
