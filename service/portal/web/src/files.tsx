// The files ready to commit, in tabs.
import { useState } from "preact/hooks";
import { Card, Copy, download, Tabs } from "./parts";
import type { Recommendation } from "./types";

export function FilesTab({ record }: { record: Recommendation }) {
  const [path, setPath] = useState(record.files[0]?.path ?? "");
  const file = record.files.find((item) => item.path === path);
  if (!file)
    return (
      <Card title="Files">
        <p>There are none: this configuration would not start.</p>
      </Card>
    );
  const save = (item: typeof file) => download(item.path, item.content, item.media_type);
  return (
    <Card title="Files ready to commit" class="wide">
      <Tabs small label="Files" tabs={record.files.map((item) => ({ id: item.path, label: item.path }))} selected={path} onSelect={setPath}>
        <div class="row file-actions">
          <button type="button" class="button small primary" onClick={() => save(file)}>
            Download {file.path}
          </button>
          <Copy text={file.content} />
          <button type="button" class="button small" onClick={() => record.files.forEach(save)}>
            Download all {record.files.length}
          </button>
        </div>
        <pre class="file" tabIndex={0} aria-label={`Content of ${file.path}`}>
          <code>{file.content}</code>
        </pre>
      </Tabs>
    </Card>
  );
}
