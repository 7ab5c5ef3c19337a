// The parts that all charts share. A chart is redrawn when its width or the colours change, but not while the pointer is held down on it.

import { colours, onThemeChange } from "./theme.js";

const CONFIG = { displayModeBar: false, doubleClick: "autosize", showTips: false };

export class Chart {
  #node;
  #build;
  #onClick;
  #isDrawn = false;
  #isHeld = false;
  #isPending = false;

  constructor(node, build, onClick = () => {}) {
    this.#node = node;
    this.#onClick = onClick; // called with the customdata of the clicked point
    this.#build = build; // returns traces and layout for colours and a width, or null if there is nothing to draw
    new ResizeObserver(() => this.draw()).observe(node);
    onThemeChange(() => this.draw());
    node.addEventListener("pointerdown", () => { this.#isHeld = true; });
    for (const name of ["pointerup", "pointercancel"]) window.addEventListener(name, () => this.#release());
  }

  draw() {
    this.#isPending = this.#isHeld;
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
    if (this.#isPending) setTimeout(() => this.draw());
  }
}

export function canZoom() {
  return !matchMedia("(pointer: coarse)").matches; // on a touch screen, dragging scrolls the page
}

export function escaped(text) {
  return text.replaceAll(/[&<>%]/g, (character) => `&#${character.charCodeAt(0)};`); // no markup, no %{template}
}

export function axis(theme, more = {}) {
  return { gridcolor: theme.line, linecolor: theme.line, zeroline: false, tickfont: { size: 11, color: theme.soft }, ...more };
}

export function titledAxis(theme, text, more = {}) {
  return axis(theme, { title: { text, font: { size: 12, color: theme.soft }, standoff: 6 }, ...more });
}

export function thresholdLine(theme, ends) {
  return { type: "line", ...ends, line: thresholdStyle(theme) };
}

export function thresholdStyle(theme) {
  return { color: theme.threshold, width: 1.5, dash: "dash" };
}

export function anomalyMarker(theme) {
  return { color: theme.anomaly, size: 9, line: { color: theme.card, width: 1.5 } };
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
