// Requests that the user can copy into a shell.

import { token } from "./token_dialog.js";

const MAX_NAMED = 12; // features; if there are more, the example sends a point as a list

export function creationExample() {
  return command("PUT", "detectors/pumps", { features: ["temperature", "pressure"] });
}

export function pointsExample(detector) {
  const { features, categorical, preset, time, key } = detector.configuration;
  const value = (name) => (categorical.includes(name) ? "A" : 1.5);
  const named = Object.fromEntries(features.map((name) => [name, value(name)]));
  const withTime = preset === "series" ? { [time]: new Date().toISOString().slice(0, 19), ...named } : named;
  const withKey = key === null ? withTime : { [key]: "A", ...withTime };
  const listed = key === null ? features.map(value) : ["A", ...features.map(value)];
  const point = features.length > MAX_NAMED ? listed : withKey;
  return command("POST", `detectors/${encodeURIComponent(detector.name)}/points`, { points: [point] });
}

function command(method, path, body) {
  const lines = [`curl -X ${method} ${new URL(path, document.baseURI)}`, "-H 'Content-Type: application/json'"];
  if (token() !== null) lines.push('-H "Authorization: Bearer $IMONDRIAN_TOKEN"');
  lines.push(`-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
