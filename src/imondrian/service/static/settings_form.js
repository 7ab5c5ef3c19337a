// The form that changes the threshold and the rules of a running detector.

import * as api from "./api.js";
import { byId, make, setText } from "./dom.js";
import { FeatureRules } from "./feature_rules.js";
import { numberOrText, thresholdWords } from "./format.js";

const THRESHOLDS = [0.01, 0.001, 0.0001, 0.00001, "top 1%", "top 5%", 0.5, "kmeans"];
const OTHER = "other";

export class SettingsForm {
  #detector = null;
  #shown = ""; // settings in the fields, as JSON
  #onChanged;
  #featureRules = new FeatureRules();

  constructor(onChanged) {
    this.#onChanged = onChanged;
    const form = byId("change");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit(form);
    });
    byId("change-threshold").addEventListener("change", showOther);
  }

  show(detector) {
    const isOther = this.#detector?.name !== detector.name || this.#detector?.created !== detector.created;
    this.#detector = detector;
    const { threshold, gap, min_points: minPoints, cooldown, side, ignore_within: ignoreWithin, silence } = detector.configuration;
    const shown = JSON.stringify([threshold, gap, minPoints, cooldown, side, ignoreWithin, silence]);
    if (shown === this.#shown && !isOther) return; // the user may be typing
    this.#shown = shown;
    if (isOther) this.#say("");
    fillThresholds(threshold);
    byId("change-gap").value = gap;
    byId("change-points").value = minPoints;
    byId("change-cooldown").value = cooldown;
    this.#featureRules.show(detector.configuration);
    byId("change-silence").value = silence === null ? "" : durationText(silence);
  }

  async #submit(form) {
    const button = form.querySelector("button");
    const { name } = this.#detector;
    button.disabled = true;
    this.#say("");
    try {
      await api.change(name, { ...settingsOf(form.elements), ...this.#featureRules.settings() });
      this.#say("Saved. The changes apply from the next point on; nothing that was learned is lost.");
      this.#onChanged();
    } catch (error) {
      setText(byId("change-error"), error.message);
    } finally {
      button.disabled = false;
    }
  }

  #say(text) {
    setText(byId("change-error"), "");
    setText(byId("change-done"), text);
  }
}

function settingsOf(fields) {
  const silence = fields.silence.value.trim();
  return {
    threshold: thresholdOf(fields),
    gap: Number(fields.gap.value),
    min_points: Number(fields.min_points.value),
    cooldown: Number(fields.cooldown.value),
    silence: silence === "" ? null : silence,
  };
}

function thresholdOf(fields) {
  return fields.threshold.value === OTHER ? numberOrText(fields.other.value) : JSON.parse(fields.threshold.value);
}

function fillThresholds(current) {
  const isKnown = THRESHOLDS.includes(current);
  const options = (isKnown ? THRESHOLDS : [current, ...THRESHOLDS]).map((value) => make("option", { value: JSON.stringify(value), textContent: thresholdWords(value) }));
  byId("change-threshold").replaceChildren(...options, make("option", { value: OTHER, textContent: "another value" }));
  byId("change-threshold").value = JSON.stringify(current);
  showOther();
}

function showOther() {
  const isOther = byId("change-threshold").value === OTHER;
  byId("change-other-field").hidden = !isOther;
  byId("change-other").disabled = !isOther;
}

function durationText(seconds) {
  for (const [unit, length] of [["d", 86_400], ["h", 3600], ["m", 60]]) if (seconds % length === 0) return `${seconds / length}${unit}`;
  return `${seconds}s`;
}
