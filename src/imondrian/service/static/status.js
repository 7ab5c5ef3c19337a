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

export function showProblems(problems) {
  const list = byId("problem-list");
  const before = Array.from(list.children, (item) => item.textContent);
  if (before.length === problems.length && before.every((text, i) => text === problems[i])) return;
  list.replaceChildren(...problems.map((text) => make("li", { textContent: text })));
  byId("problems").hidden = problems.length === 0;
}
