// Colours of the charts, from the style sheet, light or dark.

const NAMES = ["ink", "soft", "card", "line", "accent", "anomaly", "threshold", "quiet", "shade", "band"];

export function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

export function onThemeChange(callback) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", callback);
}
