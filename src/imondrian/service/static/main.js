// The page: polls the service once a second and shows the results.

import * as api from "./api.js";
import { openCreateForm, prepareCreateForm } from "./create_form.js";
import { choose, chosenName, showList } from "./detector_list.js";
import { DetectorView } from "./detector_view.js";
import { byId, setText } from "./dom.js";
import { creationExample } from "./examples.js";
import { IncidentList } from "./incident_list.js";
import { Poller } from "./poller.js";
import { openRemoveDialog, prepareRemoveDialog } from "./remove_dialog.js";
import { SettingsForm } from "./settings_form.js";
import { showProblems, showState } from "./status.js";
import { TableForm } from "./table_form.js";

const CREATE_ONE = "Create one with the form “New detector”, or from a shell:";
const HEALTH_PERIOD = 10_000; // milliseconds

const view = new DetectorView();
const table = new TableForm();
const poller = new Poller(poll);
const incidents = new IncidentList(openIncident);
const settings = new SettingsForm(() => poller.now());
let detectors = [];
let healthChecked = -Infinity; // time of the last health check
let isFormOffered = false; // whether the form was opened once, or was not needed

async function poll() {
  try {
    detectors = await api.detectors();
    show();
    if (view.detector !== null) await view.update();
    await incidents.update(detectors);
    await checkHealth();
    showState("live");
    return true;
  } catch (error) {
    showFailure(error);
    return false;
  }
}

async function checkHealth() {
  if (performance.now() - healthChecked < HEALTH_PERIOD) return;
  const { problems } = await api.health();
  showProblems(problems);
  healthChecked = performance.now();
}

function showFailure(error) {
  healthChecked = -Infinity;
  if (!(error instanceof api.ApiError)) throw error;
  if (error.status === 404) return; // the detector was removed in the meantime
  if (error.status === 401) lock();
  else if (error.status === 0) showState("gone");
  else showState("gone", `${error.message} Retrying.`);
}

function lock() {
  showState("locked");
  if (detectors.length === 0) setText(byId("empty-title"), "Enter the token to see the detectors");
  poller.isPaused = true;
}

function show() {
  if (chosenName() === "" && detectors.length > 0) {
    choose(detectors[0].name, true);
    return;
  }
  showList(detectors);
  const chosen = detectors.find(({ name }) => name === chosenName());
  byId("detector").hidden = chosen === undefined;
  byId("empty").hidden = chosen !== undefined;
  document.title = chosen === undefined ? "imondrian" : `${chosen.name} – imondrian`;
  if (chosen === undefined) {
    view.forget();
    showEmpty();
    return;
  }
  view.show(chosen);
  table.choose(chosen);
  settings.show(chosen);
}

async function openIncident(incident) {
  if (incident.detector !== chosenName()) choose(incident.detector);
  if (view.detector?.name !== incident.detector) return; // it was removed in the meantime
  const returnTarget = () => document.querySelector(`#incident-rows tr[data-id="${CSS.escape(incident.id)}"] button`);
  await view.openIncident(incident, returnTarget);
}

function showEmpty() {
  const isNone = detectors.length === 0 && chosenName() === "";
  setText(byId("empty-title"), isNone ? "No detector yet" : `There is no detector “${chosenName()}”`);
  setText(byId("empty-text"), isNone ? CREATE_ONE : "It may have been removed. Select another one, or create a new one.");
  byId("empty-example").hidden = !isNone;
  setText(byId("empty-example"), creationExample());
  if (isNone && !isFormOffered) openCreateForm();
  isFormOffered = true;
}

function chosen() {
  show();
  setPaused(false);
}

function setPaused(isPaused) {
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  if (isPaused) showState("paused");
  poller.isPaused = isPaused;
}

function created(detector) {
  if (!detectors.some(({ name }) => name === detector.name)) detectors.push(detector);
  choose(detector.name);
  byId("main").focus();
}

function removed(name) {
  detectors = detectors.filter((detector) => detector.name !== name);
  choose("", true);
  byId("main").focus();
}

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
byId("pause").addEventListener("click", () => setPaused(byId("pause").getAttribute("aria-pressed") === "false"));
byId("unlock").addEventListener("click", () => { poller.isPaused = false; });
byId("remove").addEventListener("click", () => openRemoveDialog(view.detector.name));
window.addEventListener("chosen", chosen);
window.addEventListener("hashchange", chosen);
prepareCreateForm(created);
prepareRemoveDialog(removed);
poller.now();
