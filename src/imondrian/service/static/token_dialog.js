// The token of the service: entered in a dialog, stored until the tab is closed.

import { byId, setText } from "./dom.js";

const KEY = "imondrian-token";
let asking = null;

export function token() {
  return sessionStorage.getItem(KEY);
}

export function askForToken(rejected) {
  if (rejected !== token()) return Promise.resolve(true); // another token was entered in the meantime
  asking ??= ask(rejected !== null).finally(() => { asking = null; });
  return asking;
}

async function ask(wasRejected) {
  const dialog = byId("token-dialog");
  const input = byId("token");
  input.value = "";
  dialog.returnValue = "";
  setText(byId("token-error"), wasRejected ? "The service does not accept that token." : "");
  dialog.showModal();
  input.focus();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  const entered = input.value.trim();
  input.value = "";
  if (dialog.returnValue !== "ok" || entered === "") return false;
  sessionStorage.setItem(KEY, entered);
  return true;
}
