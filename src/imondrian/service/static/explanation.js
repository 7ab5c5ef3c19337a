// The explanation of a point: its score divided among the features, as bars with text.

import { byId, make } from "./dom.js";
import { percent, visible } from "./format.js";

const MAX_COUNT = 12;

export class ExplanationPanel {
  #section;
  #hint;
  #returnTarget = null;
  #request = 0;
  #onClose;

  constructor(id, hint, onClose = () => {}) {
    this.#section = byId(id);
    this.#hint = hint;
    this.#onClose = onClose;
    this.#section.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
    this.clear();
  }

  async open({ title, load, introduction, returnTarget }) {
    this.#request += 1;
    this.#returnTarget = returnTarget;
    const request = this.#request;
    const parts = await contentOf(load, introduction);
    if (request === this.#request) this.#fill(title, parts);
  }

  close() {
    this.clear();
    this.#onClose();
    const target = this.#returnTarget?.();
    (target ?? this.#section).focus();
  }

  clear() {
    this.#request += 1;
    const heading = make("h3", { id: this.#titleId, textContent: "Explanation" });
    this.#section.replaceChildren(heading, make("p", { className: "hint", textContent: this.#hint }));
  }

  get #titleId() {
    return `${this.#section.id}-title`;
  }

  #fill(title, parts) {
    const close = make("button", { type: "button", className: "close", textContent: "Close" });
    close.addEventListener("click", () => this.close());
    const heading = make("h3", { id: this.#titleId, textContent: title });
    this.#section.replaceChildren(make("div", { className: "head" }, heading, close), ...parts);
    this.#section.focus();
  }
}

async function contentOf(load, introduction) {
  try {
    const found = await load();
    return [make("p", { className: "hint", textContent: introduction(found) }), ...barsOf(found.explanation)];
  } catch (error) {
    return [make("p", { className: "error", textContent: error.message })];
  }
}

function barsOf(reasons) {
  const list = make("ol", { className: "reasons" }, ...reasons.slice(0, MAX_COUNT).map(bar));
  const rest = reasons.slice(MAX_COUNT);
  if (rest.length === 0) return [list];
  const share = rest.reduce((sum, reason) => sum + reason.share, 0);
  return [list, make("p", { className: "hint", textContent: `${rest.length} more parts account for ${percent(share)} together.` })];
}

function bar(reason) {
  const fill = make("span", { className: "fill" });
  fill.style.width = `${Math.min(Math.max(reason.share, 0), 1) * 100}%`;
  const words = make("span", { className: "words" }, make("b", { textContent: reason.feature }), wordsOf(reason));
  const share = make("span", { className: "share", textContent: percent(reason.share) });
  return make("li", {}, words, share, make("span", { className: "track" }, fill));
}

function wordsOf({ feature, text }) {
  return visible(text.slice(text.startsWith(feature) ? feature.length : 0, text.lastIndexOf(", "))); // the share is shown beside it
}
