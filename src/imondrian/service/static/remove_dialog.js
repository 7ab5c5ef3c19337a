// The dialog that confirms the removal of a detector.

import { remove } from "./api.js";
import { byId, setText } from "./dom.js";

let name = "";

export function prepareRemoveDialog(onRemoved) {
  const dialog = byId("remove-dialog");
  byId("remove-ok").addEventListener("click", async (event) => {
    event.preventDefault();
    try {
      await remove(name);
      dialog.close();
      onRemoved(name);
    } catch (error) {
      setText(byId("remove-error"), error.message);
    }
  });
}

export function openRemoveDialog(detectorName) {
  name = detectorName;
  setText(byId("remove-title"), `Remove ${name}?`);
  setText(byId("remove-error"), "");
  byId("remove-dialog").showModal();
}
