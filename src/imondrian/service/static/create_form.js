// The form that creates a detector.

import { create } from "./api.js";
import { byId, setText } from "./dom.js";

const COUNTS = ["window", "max_samples", "n_trees", "shingle"];

export function prepareCreateForm(onCreated) {
  const form = byId("create");
  byId("new-threshold").addEventListener("change", showShare);
  form.addEventListener("invalid", openSettings, true);
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
    features: fields.features.value.split(/[,\n]/).map((name) => name.trim()).filter((name) => name !== ""),
    threshold: fields.threshold.value === "share" ? Number(fields.share.value) / 100 : fields.threshold.value,
    preset: fields.preset.value,
    learn_anomalies: fields.learn_anomalies.checked,
  };
  for (const name of COUNTS) configuration[name] = Number(fields[name].value);
  return configuration;
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
