// The form that creates a detector.

import { create } from "./api.js";
import { columnTypes } from "./column_types.js";
import { parse } from "./csv.js";
import { byId, setText } from "./dom.js";
import { acceptDrops } from "./drop_zone.js";
import { shortened } from "./format.js";

const COUNTS = ["window", "max_samples", "n_trees", "shingle"];
const MAX_CHARACTERS = 2 ** 22; // of a table whose columns are read

export function prepareCreateForm(onCreated) {
  const form = byId("create");
  byId("new-threshold").addEventListener("change", showShare);
  form.addEventListener("invalid", openSettings, true);
  form.elements.table.addEventListener("change", () => readColumns(form, form.elements.table.files[0]));
  acceptDrops(byId("new"), (file) => readColumns(form, file));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = form.elements.name.value.trim();
    await submit(form, name, onCreated);
  });
}

export function openCreateForm() {
  byId("new").open = true;
}

async function submit(form, name, onCreated) {
  const button = form.querySelector("button");
  button.disabled = true;
  setText(byId("create-error"), "");
  try {
    const detector = await create(name, configurationOf(form.elements));
    form.reset();
    showShare();
    setText(byId("new-table-hint"), "");
    byId("new").open = false;
    onCreated(detector);
  } catch (error) {
    setText(byId("create-error"), error.message);
  } finally {
    button.disabled = false;
  }
}

function configurationOf(fields) {
  const configuration = {
    features: namesIn(fields.features.value),
    categorical: namesIn(fields.categorical.value),
    missing: fields.missing.value,
    threshold: thresholdOf(fields),
    preset: fields.preset.value,
    learn_anomalies: fields.learn_anomalies.checked,
  };
  for (const name of COUNTS) configuration[name] = Number(fields[name].value);
  return configuration;
}

function thresholdOf({ threshold: { value }, share }) {
  if (value === "share") return `top ${Number(share.value)}%`;
  return Number.isFinite(Number(value)) ? Number(value) : value;
}

function namesIn(text) {
  return text.split(/[,\n]/).map((name) => name.trim()).filter((name) => name !== "");
}

async function readColumns(form, file) {
  if (!file) return;
  setText(byId("create-error"), "");
  byId("new").open = true;
  try {
    const columns = columnTypes(parse(await beginningOf(file)));
    const features = columns.filter(({ reason }) => reason === null);
    form.elements.features.value = features.map(({ name }) => name).join("\n");
    form.elements.categorical.value = features.filter(({ isCategory }) => isCategory).map(({ name }) => name).join("\n");
    setText(byId("new-table-hint"), noteOn(file.name, columns.filter(({ reason }) => reason !== null)));
  } catch (error) {
    setText(byId("create-error"), error.message);
  }
}

async function beginningOf(file) {
  const text = await file.slice(0, MAX_CHARACTERS).text();
  return file.size > MAX_CHARACTERS ? text.slice(0, text.lastIndexOf("\n")) : text; // the last line may be incomplete
}

function noteOn(name, leftOut) {
  const reasons = leftOut.map((column) => `${shortened(column.name)} (${column.reason})`);
  return `Columns of ${name}${leftOut.length === 0 ? "." : `; left out: ${shortened(reasons.join(", "), 400)}.`}`;
}

function showShare() {
  const isShare = byId("new-threshold").value === "share";
  byId("new-share-field").hidden = !isShare;
  byId("new-share").disabled = !isShare;
}

function openSettings(event) {
  const more = event.target.closest("details.more");
  if (more !== null) more.open = true;
}
