// The token of the service: asked for in a dialog, kept until the tab is closed.

import { byId, setText } from "./dom.js";

const KEY = "imondrian-token";
let asking = null;

export function token() {
  return sessionStorage.getItem(KEY);
}

export function askForToken(refused) {
  if (refused !== token()) return Promise.resolve(true); // somebody has given another one meanwhile
  asking ??= ask(refused !== null).finally(() => { asking = null; });
  return asking;
}

async function ask(wasRefused) {
  const dialog = byId("token-dialog");
  const input = byId("token");
  input.value = "";
  dialog.returnValue = "";
  setText(byId("token-error"), wasRefused ? "The service does not accept that token." : "");
  dialog.showModal();
  input.focus();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  const given = input.value.trim();
  input.value = "";
  if (dialog.returnValue !== "ok" || given === "") return false;
  sessionStorage.setItem(KEY, given);
  return true;
}
