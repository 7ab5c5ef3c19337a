// The form that creates a detector.

import { create } from "./api.js";
import { columnTypes } from "./column_types.js";
import { parse } from "./csv.js";
import { byId, setText } from "./dom.js";
import { acceptDrops } from "./drop_zone.js";
import { shortened } from "./format.js";

const SIZES = ["window", "max_samples", "n_trees"]; // an empty field means the value of the preset
const SERIES_MISSING = ["median", "raise"]; // what a time series allows
const MAX_BYTES = 2 ** 22; // of a table that are read to find its columns

export function prepareCreateForm(onCreated) {
  const form = byId("create");
  let columns = []; // of a table
  const showColumns = () => fillNames(form.elements, columns);
  byId("new-threshold").addEventListener("change", showShare);
  byId("new-preset").addEventListener("change", () => {
    showPreset();
    showColumns();
  });
  const read = async (file) => {
    columns = (await readColumns(file)) ?? columns;
    showColumns();
  };
  form.addEventListener("invalid", openSettings, true);
  form.elements.table.addEventListener("change", () => read(form.elements.table.files[0]));
  acceptDrops(byId("new"), read);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = form.elements.name.value.trim();
    if (await submit(form, name, onCreated)) columns = [];
  });
  showPreset();
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
    showPreset();
    setText(byId("new-table-hint"), "");
    byId("new").open = false;
    onCreated(detector);
    return true;
  } catch (error) {
    setText(byId("create-error"), error.message);
    return false;
  } finally {
    button.disabled = false;
  }
}

function configurationOf(fields) {
  const configuration = {
    features: namesIn(fields.features.value),
    categorical: isSeries() ? [] : namesIn(fields.categorical.value),
    missing: fields.missing.value,
    threshold: thresholdOf(fields),
    preset: fields.preset.value,
    learn_anomalies: fields.learn_anomalies.checked,
  };
  if (!isSeries()) configuration.shingle = Number(fields.shingle.value);
  if (fields.time.value.trim() !== "") configuration.time = fields.time.value.trim();
  for (const name of SIZES) if (fields[name].value !== "") configuration[name] = Number(fields[name].value);
  return configuration;
}

function thresholdOf({ threshold: { value }, share }) {
  if (value === "share") return `top ${Number(share.value)}%`;
  return Number.isFinite(Number(value)) ? Number(value) : value;
}

function namesIn(text) {
  return text.split(/[,\n]/).map((name) => name.trim()).filter((name) => name !== "");
}

// Returns the columns of a table, each with the name of the file, or null if the file cannot be read.
async function readColumns(file) {
  if (!file) return null;
  setText(byId("create-error"), "");
  byId("new").open = true;
  try {
    return columnTypes(parse(await beginningOf(file))).map((column) => ({ ...column, file: file.name }));
  } catch (error) {
    setText(byId("create-error"), error.message);
    return null;
  }
}

function fillNames(fields, columns) {
  if (columns.length === 0) return;
  const known = columns.map((column) => (isSeries() && column.isCategory && column.reason === null ? { ...column, reason: "it is not a number" } : column));
  const features = known.filter(({ reason }) => reason === null);
  fields.features.value = linesOf(features);
  fields.categorical.value = linesOf(features.filter(({ isCategory }) => isCategory));
  fields.time.value = known.find(({ isTime }) => isTime)?.name ?? "";
  setText(byId("new-table-hint"), noteOn(columns[0].file, known.filter(({ reason }) => reason !== null)));
}

function linesOf(columns) {
  return columns.map(({ name }) => name).join("\n");
}

async function beginningOf(file) {
  const text = await file.slice(0, MAX_BYTES).text();
  return file.size > MAX_BYTES ? text.slice(0, text.lastIndexOf("\n")) : text; // the last line may be incomplete
}

function noteOn(name, leftOut) {
  const reasons = leftOut.map((column) => `${shortened(column.name)} (${column.reason})`);
  return `Columns of ${name}${leftOut.length === 0 ? "." : `; left out: ${shortened(reasons.join(", "), 400)}.`}`;
}

function isSeries() {
  return byId("new-preset").value === "series";
}

// Shows the fields that the preset allows, and the sizes that it sets by default.
function showPreset() {
  const { dataset } = byId("new-preset").selectedOptions[0];
  byId("new-window").placeholder = dataset.window;
  byId("new-samples").placeholder = dataset.maxSamples;
  byId("new-trees").placeholder = dataset.nTrees;
  for (const id of ["new-categorical-field", "new-shingle-field"]) byId(id).hidden = isSeries();
  const missing = byId("new-missing");
  for (const option of missing.options) option.disabled = isSeries() && !SERIES_MISSING.includes(option.value);
  if (missing.selectedOptions[0].disabled) [missing.value] = SERIES_MISSING;
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
