// Who can prove a recommendation.
import { useEffect } from "preact/hooks";
import { getWorkers } from "./api";
import { ago, count, duration, gib, NONE } from "./format";
import { useLoaded } from "./hooks";
import { Card, Failure, Waiting } from "./parts";
import type { QueueState, WorkerNode } from "./types";

function Node({ node }: { node: WorkerNode }) {
  return (
    <Card title={node.node} actions={<span class="faint">seen {ago(node.heartbeat_at)}</span>}>
      <div class="scroll" tabIndex={0} role="group" aria-label={`Devices of ${node.node}`}>
        <table>
          <thead>
            <tr>
              <th scope="col">Device</th>
              <th scope="col" class="num">Free</th>
              <th scope="col" class="num">Memory</th>
              <th scope="col" class="num">Others' processes</th>
            </tr>
          </thead>
          <tbody>
            {node.devices.map((device) => (
              <tr key={device.uuid}>
                <th scope="row">{device.name}</th>
                <td class="num">{gib(device.free_gib)}</td>
                <td class="num">{gib(device.memory_gib)}</td>
                <td class="num">{device.foreign_processes ?? 0}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <dl class="facts">
        <div>
          <dt>vLLM</dt>
          <dd>{node.environments.map((item) => `${item.version}${item.is_cpu ? " (CPU)" : ""}`).join(", ") || "none found"}</dd>
        </div>
        <div>
          <dt>Driver</dt>
          <dd>{node.driver ?? NONE}</dd>
        </div>
        <div>
          <dt>Queues</dt>
          <dd>{node.queues.join(", ") || NONE}</dd>
        </div>
        <div>
          <dt>Setpoint</dt>
          <dd>{node.setpoint_version}</dd>
        </div>
      </dl>
    </Card>
  );
}

function Queues({ queues }: { queues: QueueState[] }) {
  return (
    <Card title="Queues">
      <div class="scroll" tabIndex={0} role="group" aria-label="Queues">
        <table>
          <thead>
            <tr>
              <th scope="col">Queue</th>
              <th scope="col" class="num">Waiting</th>
              <th scope="col" class="num">Oldest waits for</th>
            </tr>
          </thead>
          <tbody>
            {queues.map((item) => (
              <tr key={item.queue}>
                <th scope="row">{item.queue}</th>
                <td class="num">{count(item.waiting)}</td>
                <td class="num">{item.oldest_waiting_s == null ? NONE : duration(item.oldest_waiting_s * 1000)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

const REFRESH_MS = 5000;

export function WorkersPage() {
  const loaded = useLoaded(getWorkers, "workers");
  useEffect(() => {
    document.title = "Workers · Setpoint";
    const timer = setInterval(loaded.reload, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <div class="page">
      <h1>Workers</h1>
      <p class="lead">Machines that can start vLLM and measure a recommendation.</p>
      {loaded.error && <Failure error={loaded.error} again={loaded.reload} />}
      {!loaded.value && !loaded.error && <Waiting what="Asking for workers" />}
      {loaded.value?.items.length === 0 && (
        <Card title="No worker is connected">
          <p>
            Recommendations and what-ifs need none. To measure on real hardware, start <code>setpoint worker</code> on a machine
            with GPUs and vLLM, with <code>SETPOINT_REDIS_URL</code> naming the store of this service.
          </p>
        </Card>
      )}
      {!!loaded.value?.queues?.length && <Queues queues={loaded.value.queues} />}
      <div class="cards">
        {loaded.value?.items.map((node) => <Node key={node.node} node={node} />)}
      </div>
    </div>
  );
}
