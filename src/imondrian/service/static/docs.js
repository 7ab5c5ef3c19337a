// The page of routes, each with its description, its parameters, the fields of its body, an example, and its statuses.

import { description } from "./api.js";
import { byId, make, setText } from "./dom.js";

async function showRoutes() {
  try {
    const api = await description();
    for (const [path, operations] of Object.entries(api.paths)) {
      for (const [method, operation] of Object.entries(operations)) byId("routes").append(route(api, method, path, operation));
    }
  } catch (error) {
    setText(byId("routes-error"), error.message);
  }
}

function route(api, method, path, operation) {
  const parts = operation.description.split("\n\n").map((text) => make("p", { textContent: text }));
  for (const parameter of operation.parameters ?? []) {
    parts.push(field(`${parameter.name} (${parameter.in})`, parameter.description ?? ""));
  }
  const body = operation.requestBody?.content["application/json"];
  for (const [name, schema] of Object.entries(resolved(api, body?.schema)?.properties ?? {})) {
    parts.push(field(name, schema.description ?? schema.items?.description ?? ""));
  }
  const example = Object.values(body?.examples ?? {})[0]?.value;
  if (example) parts.push(make("pre", { textContent: JSON.stringify(example) }));
  const statuses = Object.entries(operation.responses).map(([status, response]) => `${status} ${response.description}`);
  parts.push(make("p", { className: "hint", textContent: statuses.join(", ") }));
  const title = make("summary", {}, make("code", { textContent: `${method.toUpperCase()} ${path}` }));
  return make("details", {}, title, ...parts);
}

function field(name, meaning) {
  return make("p", {}, make("code", { textContent: name }), meaning && ` ${meaning}`);
}

function resolved(api, schema) {
  return schema?.$ref ? api.components.schemas[schema.$ref.split("/").at(-1)] : schema;
}

showRoutes();
