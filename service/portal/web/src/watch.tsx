// What to watch in production.
import { Card, Copy } from "./parts";
import type { Recommendation } from "./types";

export function WatchTab({ record }: { record: Recommendation }) {
  return (
    <Card title="What to watch in production" class="wide" note="The same expressions are in alerts.yaml, ready for Prometheus.">
      <ul class="watch">
        {record.watch.map((item) => (
          <li key={item.metric + item.threshold}>
            <h3>
              {item.meaning} <span class="tag">{item.threshold}</span>
            </h3>
            <p>
              <b>Then:</b> {item.then}.
            </p>
            <div class="expression">
              <code>{item.metric}</code>
              <Copy text={item.metric} />
            </div>
          </li>
        ))}
      </ul>
    </Card>
  );
}
