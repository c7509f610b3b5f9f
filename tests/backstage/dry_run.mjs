// Holds entities to Backstage's schemas, and runs a template's steps as far as its own engine and
// a running service go: requests are sent, files and the pull request are only told.
import { json } from "node:stream/consumers";
import * as model from "@backstage/catalog-model";
import { templateEntityV1beta3Validator } from "@backstage/plugin-scaffolder-common";
import { createTemplateRenderer } from "nunjitsu";

const VALIDATORS = {
  API: model.apiEntityV1alpha1Validator,
  Component: model.componentEntityV1alpha1Validator,
  Template: templateEntityV1beta3Validator,
};
const policies = model.EntityPolicies.allOf([
  new model.FieldFormatEntityPolicy(),
  new model.SchemaValidEntityPolicy(),
  new model.NoForeignRootFieldsEntityPolicy(),
]);
const renderer = createTemplateRenderer();

/** Returns a value with its expressions filled in; one that is a single expression keeps its type. */
function fill(value, context) {
  if (Array.isArray(value)) return value.map((item) => fill(item, context));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, fill(v, context)]));
  }
  if (typeof value !== "string") return value;
  const alone = /^\$\{\{\s*((?:(?!\}\}).)*?)\s*\}\}$/.exec(value);
  return alone
    ? JSON.parse(renderer.render("${{ (" + alone[1] + ") | dump }}", context))
    : renderer.render(value, context);
}

async function send(input, { baseUrl, authorization }) {
  const path = input.path.replace(/^\/proxy\/setpoint/, "");
  const response = await fetch(baseUrl + path, {
    method: input.method,
    headers: { ...input.headers, Authorization: authorization },
    body: JSON.stringify(input.body),
  });
  if (!response.ok) throw new Error(await response.text());
  return { code: response.status, body: await response.json() };
}

const { entities, parameters, service } = await json(process.stdin);
for (const entity of entities) {
  const known = await VALIDATORS[entity.kind].check(entity);
  if (!known) throw new Error(`${entity.kind} has an unknown version`);
  await policies.enforce(entity);
}
const template = entities.find((entity) => entity.kind === "Template");
const told = { files: {}, pullRequest: null, output: null };
const context = { parameters, steps: {} };
for (const step of template.spec.steps) {
  const rounds = step.each ? fill(step.each, context).map((value, key) => ({ key, value })) : [null];
  for (const each of rounds) {
    const input = fill(step.input, { ...context, each });
    const output =
      step.action === "http:backstage:request"
        ? await send(input, service)
        : step.action === "publish:github:pull-request"
          ? { remoteUrl: "https://github.com/pull/1" }
          : {};
    if (step.action === "roadiehq:utils:fs:write") told.files[input.path] = input.content;
    if (step.action === "publish:github:pull-request") told.pullRequest = input;
    context.steps[step.id] = { output };
  }
}
told.output = fill(template.spec.output, context);
console.log(JSON.stringify(told));
