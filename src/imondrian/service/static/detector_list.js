// The list of detectors; the hash of the URL selects one.

import { byId, make, setText } from "./dom.js";
import { withUnit } from "./format.js";

const items = new Map(); // by name

export function chosenName() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return location.hash.slice(1);
  }
}

export function choose(name, isReplacing = false) {
  const address = name === "" ? location.pathname : `#${encodeURIComponent(name)}`;
  if (isReplacing) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  window.dispatchEvent(new Event("chosen"));
}

export function showList(detectors) {
  const names = new Set(detectors.map((detector) => detector.name));
  for (const [name, item] of items) {
    if (!names.has(name)) {
      item.remove();
      items.delete(name);
    }
  }
  for (const detector of detectors) showItem(detector);
}

function showItem(detector) {
  if (!items.has(detector.name)) {
    items.set(detector.name, newItem(detector.name));
    byId("detectors").append(items.get(detector.name));
  }
  const link = items.get(detector.name).firstElementChild;
  if (detector.name === chosenName()) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
  setText(link.querySelector(".points"), withUnit(detector.n_seen, "point"));
  const anomalies = link.querySelector(".anomalies");
  setText(anomalies, withUnit(detector.n_anomalies, "anomaly", "anomalies"));
  anomalies.classList.toggle("nonzero", detector.n_anomalies > 0);
  const open = link.querySelector(".open-incidents");
  setText(open, withUnit(detector.n_open_incidents, "open incident"));
  open.hidden = detector.n_open_incidents === 0;
}

function newItem(name) {
  const figures = make("span", { className: "figures" }, make("span", { className: "points" }), make("span", { className: "anomalies" }), make("span", { className: "open-incidents" }));
  const link = make("a", { href: `#${encodeURIComponent(name)}` }, make("span", { className: "name", textContent: name }), figures);
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    choose(name);
  });
  return make("li", {}, link);
}
