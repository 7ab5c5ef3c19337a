// Why a point is odd: its score divided among the features, as bars with words.

import { byId, make } from "./dom.js";
import { measure, percent } from "./format.js";

const N_MOST = 12;

export class Why {
  #section;
  #hint;
  #back = null;
  #turn = 0;
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

  async open({ title, load, lead, back }) {
    this.#turn += 1;
    this.#back = back;
    const turn = this.#turn;
    const parts = await answerOf(load, lead);
    if (turn === this.#turn) this.#fill(title, parts);
  }

  close() {
    this.clear();
    this.#onClose();
    const target = this.#back?.();
    (target ?? this.#section).focus();
  }

  clear() {
    this.#turn += 1;
    const heading = make("h3", { id: this.#titleId, textContent: "Why" });
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

async function answerOf(load, lead) {
  try {
    const found = await load();
    return [make("p", { className: "hint", textContent: lead(found) }), ...barsOf(found.explanation)];
  } catch (error) {
    return [make("p", { className: "error", textContent: error.message })];
  }
}

function barsOf(reasons) {
  const list = make("ol", { className: "reasons" }, ...reasons.slice(0, N_MOST).map(bar));
  const rest = reasons.slice(N_MOST);
  if (rest.length === 0) return [list];
  const share = rest.reduce((sum, reason) => sum + reason.share, 0);
  return [list, make("p", { className: "hint", textContent: `${rest.length} more features have ${percent(share)} together.` })];
}

function bar(reason) {
  const fill = make("span", { className: "fill" });
  fill.style.width = `${Math.min(Math.max(reason.share, 0), 1) * 100}%`;
  const words = make("span", { className: "words" }, make("b", { textContent: reason.feature }), ` ${wordsOf(reason)}`);
  const share = make("span", { className: "share", textContent: percent(reason.share) });
  return make("li", {}, words, share, make("span", { className: "track" }, fill));
}

function wordsOf({ value, usual: [low, high], side }) {
  const isOutside = value < low || value > high;
  return `${measure(value)}, usually ${measure(low)} to ${measure(high)}${isOutside ? `, ${side}` : ""}`;
}
