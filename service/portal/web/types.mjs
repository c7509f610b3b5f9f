// Writes src/openapi.d.ts from the API's document, which it reads from standard input.
// Only shapes count here: texts and examples of the document change more often than they do.
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { json } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "src", "openapi.d.ts");
const TEXTS = ["description", "summary", "example", "examples", "default", "links", "pattern"];

/** Returns the document without texts; what stands under `properties` are names, not keywords. */
function shapesOf(node, isNames = false) {
  if (Array.isArray(node)) return node.map((child) => shapesOf(child));
  if (node === null || typeof node !== "object") return node;
  const kept = Object.entries(node).filter(([name]) => isNames || !TEXTS.includes(name));
  return Object.fromEntries(
    kept.map(([name, child]) => [name, shapesOf(child, !isNames && name === "properties")]),
  );
}

const { components } = await json(process.stdin);
// The page shows whichever of vLLM's hundreds of settings are there.
components.schemas.EngineConfig = { type: "object", additionalProperties: {} };
const shapes = {
  openapi: "3.1.0",
  info: { title: "Setpoint", version: "0" },
  paths: {},
  components: { schemas: shapesOf(components.schemas) },
};
const source = astToString(
  await openapiTS(shapes, {
    alphabetize: true,
    inject: "export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };",
  }),
);
// What the document leaves open is still JSON.
const typed = source.replaceAll(/: unknown\b/g, ": Json");
writeFileSync(out, `// Made by \`make portal\` from the API's document; not to be edited.\n\n${typed}`);
