// The incidents of all detectors: open ones first or the latest first, with a search.

import * as api from "./api.js";
import { byId, setText } from "./dom.js";
import { integer, oneIn, ownTimeText, shortened, time, visible, withUnit } from "./format.js";
import { keyText } from "./key_list.js";
import { buttonRow, headRow } from "./table_rows.js";

const PERIOD = 10_000; // milliseconds between two requests while an incident is open
const MAX_TEXT = 160; // characters of an explanation
const MAX_KEY = 40; // characters of a key
const TITLES = ["Detector", "State", "Opened", "Lasted", "Surprise", "Alarms", "What"];

export class IncidentList {
  #incidents = [];
  #key = null;
  #requested = -Infinity;
  #shown = "";
  #onOpen;

  constructor(onOpen) {
    this.#onOpen = onOpen; // called with an incident
    byId("incidents-head").replaceChildren(headRow(TITLES));
    byId("incident-filter").addEventListener("submit", (event) => event.preventDefault());
    for (const id of ["incident-search", "incident-sort"]) byId(id).addEventListener("input", () => this.#show());
  }

  async update(detectors) {
    const key = JSON.stringify(detectors.map(({ name, created, n_incidents: n, n_open_incidents: nOpen }) => [name, created, n, nOpen]));
    const isAnyOpen = detectors.some(({ n_open_incidents: nOpen }) => nOpen > 0);
    const isDue = isAnyOpen && performance.now() - this.#requested > PERIOD;
    if (key === this.#key && !isDue) return;
    this.#incidents = (await api.incidents()).incidents;
    this.#requested = performance.now();
    this.#key = key;
    this.#show();
  }

  #show() {
    const found = this.#found();
    const nOpen = this.#incidents.filter((incident) => incident.is_open).length;
    byId("incidents").hidden = this.#incidents.length === 0;
    setText(byId("incidents-hint"), `${integer(nOpen)} open, ${integer(this.#incidents.length)} listed${found.length === this.#incidents.length ? "" : `, ${integer(found.length)} found`}`);
    byId("incidents-box").hidden = found.length === 0;
    const shown = JSON.stringify(found);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#fill(found);
  }

  #found() {
    const words = byId("incident-search").value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const found = this.#incidents.filter((incident) => words.every((word) => searchText(incident).includes(word)));
    const isOpenFirst = byId("incident-sort").value === "open";
    return found.sort((a, b) => (isOpenFirst ? b.is_open - a.is_open : 0) || (b.opened.time ?? 0) - (a.opened.time ?? 0));
  }

  #fill(found) {
    const focused = document.activeElement?.closest("#incident-rows tr")?.dataset.id;
    byId("incident-rows").replaceChildren(...found.map((incident) => this.#row(incident)));
    if (focused === undefined) return;
    const row = [...byId("incident-rows").children].find(({ dataset }) => dataset.id === focused);
    (row?.querySelector("button") ?? byId("incidents-box")).focus();
  }

  #row(incident) {
    const { peak, n_alarms: nAlarms } = incident;
    const isSilence = incident.kind === "silence";
    const cells = [
      incident.is_open ? "open" : "closed",
      moment(incident.opened),
      lengthOf(incident),
      isSilence ? "–" : oneIn(peak.surprise),
      isSilence ? "–" : integer(nAlarms),
      shortened(visible(incident.text), MAX_TEXT),
    ];
    const row = buttonRow(sourceOf(incident), `${isSilence ? "Silence" : "Incident"} ${integer(incident.incident)} of ${sourceOf(incident)}`, cells, () => this.#onOpen(incident));
    row.dataset.id = incident.id;
    row.classList.toggle("open-incident", incident.is_open);
    row.lastElementChild.title = visible(incident.text);
    return row;
  }
}

export function incidentIntroduction(incident) {
  const { peak, first, last, opened, closed } = incident;
  const state = closed === null ? "still open" : `closed at ${moment(closed)}`;
  if (incident.kind === "silence") return `No data since ${moment(first)}; opened at ${moment(opened)}, ${state}.`;
  const rows = first.index === last.index ? `at point ${integer(first.index)}` : `from point ${integer(first.index)} to ${integer(last.index)}`;
  return `${withUnit(incident.n_alarms, "alarm")} ${rows}, opened at ${moment(opened)}, ${state}. Highest surprise: ${oneIn(peak.surprise)}, at point ${integer(peak.index)}. Share of the score by feature:`;
}

// The detector of an incident, with its key.
export function sourceOf({ detector, key }) {
  return key === null ? detector : `${detector}: ${keyText(key, MAX_KEY)}`;
}

function searchText({ detector, key, text, kind, is_open: isOpen }) {
  return `${detector} ${key ?? ""} ${text} ${kind} ${isOpen ? "open" : "closed"}`.toLowerCase();
}

function moment({ time: seconds, own_time: own }) {
  if (own !== null) return visible(ownTimeText(own));
  return seconds === null ? "unknown" : time(seconds);
}

function lengthOf({ first, last, closed, kind }) {
  const end = kind === "silence" ? (closed?.time ?? Date.now() / 1000) : last.time;
  const own = (Date.parse(last.own_time) - Date.parse(first.own_time)) / 1000;
  const length = Number.isFinite(own) ? own : end - first.time;
  if (!Number.isFinite(own) && (first.time === null || end === null)) return "–";
  const seconds = Math.max(Math.round(length), 0);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86_400)} d`;
}
