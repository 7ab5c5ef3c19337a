// What all charts share: drawn again when the width or the colours change, but not while a button is held.

import { colours, onThemeChange } from "./theme.js";

const CONFIG = { displayModeBar: false, doubleClick: "autosize", showTips: false };

export class Chart {
  #node;
  #build;
  #onClick;
  #isDrawn = false;
  #isHeld = false;
  #isLate = false;

  constructor(node, build, onClick = () => {}) {
    this.#node = node;
    this.#onClick = onClick; // is given the customdata of the point
    this.#build = build; // gives traces and layout for colours and a width, or null if there is nothing to draw
    new ResizeObserver(() => this.draw()).observe(node);
    onThemeChange(() => this.draw());
    node.addEventListener("pointerdown", () => { this.#isHeld = true; });
    for (const name of ["pointerup", "pointercancel"]) window.addEventListener(name, () => this.#release());
  }

  draw() {
    this.#isLate = this.#isHeld;
    const width = this.#node.clientWidth;
    if (this.#isHeld || width === 0) return;
    const theme = colours();
    const figure = this.#build(theme, width);
    if (figure === null) return;
    const layout = { ...common(theme), ...figure.layout, width };
    Plotly.react(this.#node, figure.traces, layout, CONFIG);
    if (!this.#isDrawn) this.#node.on("plotly_click", (event) => this.#onClick(event.points[0].customdata));
    this.#isDrawn = true;
  }

  #release() {
    if (!this.#isHeld) return;
    this.#isHeld = false;
    if (this.#isLate) setTimeout(() => this.draw());
  }
}

export function canZoom() {
  return !matchMedia("(pointer: coarse)").matches; // a finger scrolls the page
}

export function plain(text) {
  return text.replaceAll(/[&<>%]/g, (character) => `&#${character.charCodeAt(0)};`); // no markup, no %{template}
}

export function axis(theme, more = {}) {
  return { gridcolor: theme.line, linecolor: theme.line, zeroline: false, tickfont: { size: 11, color: theme.soft }, ...more };
}

export function titled(theme, text, more = {}) {
  return axis(theme, { title: { text, font: { size: 12, color: theme.soft }, standoff: 6 }, ...more });
}

export function limitLine(theme, ends) {
  return { type: "line", ...ends, line: limitStyle(theme) };
}

export function limitStyle(theme) {
  return { color: theme.limit, width: 1.5, dash: "dash" };
}

export function oddMarker(theme) {
  return { color: theme.odd, size: 9, line: { color: theme.card, width: 1.5 } };
}

export function note(text, more) {
  return { text, showarrow: false, xref: "paper", yref: "paper", ...more };
}

function common(theme) {
  return {
    paper_bgcolor: theme.card,
    plot_bgcolor: theme.card,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: theme.ink },
    hoverlabel: { bgcolor: theme.card, bordercolor: theme.line, font: { color: theme.ink } },
    showlegend: false,
    hovermode: "closest",
    dragmode: canZoom() ? "zoom" : false,
  };
}
