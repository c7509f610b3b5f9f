// Every setting with why, formula, inputs, source, and what a change would do.
import { useState } from "preact/hooks";
import { value } from "./format";
import { Card, Pill, Sources } from "./parts";
import type { Decision, Json, Recommendation } from "./types";

function Input({ item }: { item: Json }) {
  if (Array.isArray(item)) {
    if (!item.length) return <>none</>;
    return (
      <ul class="plain">
        {item.map((entry, index) => (
          <li key={index}>
            <Input item={entry} />
          </li>
        ))}
      </ul>
    );
  }
  if (item !== null && typeof item === "object")
    return <>{Object.entries(item).map(([name, part]) => `${name.replaceAll("_", " ")} ${value(part)}`).join(", ")}</>;
  if (typeof item === "number") return <>{item.toLocaleString("en-US", { maximumSignificantDigits: 7 })}</>;
  return <>{item === null ? "none" : typeof item === "boolean" ? (item ? "yes" : "no") : item}</>;
}

const CONFIDENCE = { high: "good", medium: "info", low: "warn" } as const;

function DecisionRow({ decision, open }: { decision: Decision; open: boolean }) {
  const inputs = Object.entries(decision.inputs);
  return (
    <details class="decision" open={open}>
      <summary>
        <code>{decision.setting}</code>
        <b class={decision.value === null ? "unset" : ""}>{value(decision.value)}</b>
        <span class="why">{decision.reason}</span>
      </summary>
      <div class="decision-body">
        <p class="reason">{decision.reason}</p>
        <div class="ifs">
          <p>
            <span class="arrow" aria-hidden="true">↑</span>
            <b>If higher</b> {decision.if_higher}
          </p>
          <p>
            <span class="arrow" aria-hidden="true">↓</span>
            <b>If lower</b> {decision.if_lower}
          </p>
        </div>
        {decision.formula && (
          <p class="formula">
            <span class="faint">Formula</span> <code>{decision.formula}</code>
          </p>
        )}
        {inputs.length > 0 && (
          <dl class="inputs">
            {inputs.map(([name, item]) => (
              <div key={name}>
                <dt>{name.replaceAll("_", " ")}</dt>
                <dd>
                  <Input item={item} />
                </dd>
              </div>
            ))}
          </dl>
        )}
        <Sources sources={decision.source} />
        <p class="row small">
          <Pill tone={CONFIDENCE[decision.confidence]}>confidence {decision.confidence}</Pill>
          <span class="faint">rule {decision.rule}</span>
        </p>
      </div>
    </details>
  );
}

export function SettingsTab({ record }: { record: Recommendation }) {
  const [open, setOpen] = useState(false);
  const set = record.decisions.filter((decision) => decision.value !== null);
  const left = record.decisions.filter((decision) => decision.value === null);
  const rows = (decisions: Decision[]) =>
    decisions.map((decision) => <DecisionRow key={decision.setting + decision.rule + open} decision={decision} open={open} />);
  return (
    <div class="cards">
      <Card
        title="Set on purpose"
        class="wide"
        actions={
          <button type="button" class="button small" aria-pressed={open} onClick={() => setOpen(!open)}>
            {open ? "Fold all" : "Unfold all"}
          </button>
        }
      >
        {rows(set)}
      </Card>
      {left.length > 0 && (
        <Card title="Left to vLLM" class="wide" note="Settings that guides often ask for, and why none of them is needed here.">
          {rows(left)}
        </Card>
      )}
    </div>
  );
}
