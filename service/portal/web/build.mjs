// Writes ../static from the sources: the same bytes for the same lock file on every machine.
import { build } from "esbuild";
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "static");

/** Returns every package whose code went into the bundle, from the bundler's own account. */
function bundledPackages(inputs) {
  const names = Object.keys(inputs)
    .map((path) => /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1])
    .filter(Boolean);
  return [...new Set(names)].sort();
}

function licence(name) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e(\.|$)/i.test(entry));
  if (!file) throw new Error(`${name} brings no licence text`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
}

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const result = await build({
  absWorkingDir: here,
  entryPoints: { portal: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  metafile: true,
});
for (const name of ["index.html", "icon.svg"]) cpSync(join(here, "src", name), join(out, name));
const licences = bundledPackages(result.metafile.inputs).map(licence);
writeFileSync(join(out, "licences.txt"), licences.join(`\n${"-".repeat(80)}\n\n`));
