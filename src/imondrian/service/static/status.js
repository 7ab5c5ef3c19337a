// The state of the service: a line in the header, and below it the problems that the service reports.

import { byId, make, setText } from "./dom.js";

const TEXTS = {
  live: "Live",
  paused: "Paused",
  gone: "The service cannot be reached. Retrying.",
  locked: "A token is required.",
};

export function showState(state, text = TEXTS[state]) {
  const line = byId("status");
  line.dataset.state = state;
  setText(line, text);
  byId("unlock").hidden = state !== "locked";
  byId("pause").hidden = state === "locked";
}

export function showComplaints(complaints) {
  const list = byId("complaint-list");
  const before = Array.from(list.children, (item) => item.textContent);
  if (before.length === complaints.length && before.every((text, i) => text === complaints[i])) return;
  list.replaceChildren(...complaints.map((text) => make("li", { textContent: text })));
  byId("complaints").hidden = complaints.length === 0;
}
