// The page: what is asked of the service once a second, and what is shown of it.

import * as api from "./api.js";
import { openCreation, prepareCreation } from "./creation.js";
import { DetectorView } from "./detector.js";
import { byId, setText } from "./dom.js";
import { creationExample } from "./examples.js";
import { choose, chosenName, showList } from "./listing.js";
import { Poller } from "./polling.js";
import { askToRemove, prepareRemoval } from "./removal.js";
import { showComplaints, showState } from "./status.js";
import { TableForm } from "./table.js";

const MAKE_ONE = "Make one with the form “New detector”, or from a shell:";
const HEALTH_PERIOD = 10_000; // milliseconds

const view = new DetectorView();
const table = new TableForm();
const poller = new Poller(poll);
let detectors = [];
let asked = -Infinity; // when the health was
let isOffered = false; // the form of a new detector was opened, or there was no need

async function poll() {
  try {
    detectors = await api.detectors();
    show();
    if (view.detector !== null) await view.update();
    await askForHealth();
    showState("live");
    return true;
  } catch (error) {
    tellFailure(error);
    return false;
  }
}

async function askForHealth() {
  if (performance.now() - asked < HEALTH_PERIOD) return;
  const { complaints } = await api.health();
  showComplaints(complaints);
  asked = performance.now();
}

function tellFailure(error) {
  asked = -Infinity;
  if (!(error instanceof api.ApiError)) throw error;
  if (error.status === 404) return; // the detector was removed meanwhile
  if (error.status === 401) lock();
  else if (error.status === 0) showState("gone");
  else showState("gone", `${error.message} Trying again.`);
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
}

function showEmpty() {
  const isNone = detectors.length === 0 && chosenName() === "";
  setText(byId("empty-title"), isNone ? "No detector yet" : `There is no detector “${chosenName()}”`);
  setText(byId("empty-text"), isNone ? MAKE_ONE : "It may have been removed. Choose another one, or make a new one.");
  byId("empty-example").hidden = !isNone;
  setText(byId("empty-example"), creationExample());
  if (isNone && !isOffered) openCreation();
  isOffered = true;
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
byId("remove").addEventListener("click", () => askToRemove(view.detector.name));
window.addEventListener("chosen", chosen);
window.addEventListener("hashchange", chosen);
prepareCreation(created);
prepareRemoval(removed);
poller.now();
