// Keys of the page: a key presses the visible button that has it.
import { byId } from "/static/server.js";
import { state, zoom } from "/static/elements.js";
import { zoomable } from "/static/item.js";
import { sift } from "/static/filter.js";
import * as groups from "/static/groups.js";
import * as sheet from "/static/grid.js";

let undo = () => undefined;

export function listen(undoing) {
  undo = undoing;
  document.addEventListener("keydown", press);
}

function large() {
  if (state.view === "grid") {
    const tile = sheet.focused();
    if (tile) zoom(zoomable(tile), 0);
  } else if (state.view === "groups" && !groups.isCopies()) groups.showLarge();
  else document.querySelector("#main .large")?.click();
}

const FOCUS = { c: () => byId("note").select(), "/": () => { sift(true); byId("label").select(); }, z: large };

function press(event) {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (document.querySelector("dialog[open]") || event.altKey || event.defaultPrevented) return;
  // The field of a dialog that was closed just now still has the focus for a moment; it is not visible.
  const typing = event.target.matches("input, select, textarea") && event.target.offsetParent !== null;
  if ((event.ctrlKey || event.metaKey) && key === "z" && !typing) {
    event.preventDefault();
    return undo();
  }
  if (event.ctrlKey || event.metaKey) return;
  if (typing) {
    if (event.key === "Escape" || (event.key === "Enter" && event.target.matches("input"))) event.target.blur();
    return;
  }
  if (event.repeat && !key.startsWith("Arrow")) return;
  if (state.view === "groups" && state.group && !groups.isCopies() && groups.keys(event)) return;
  // Enter presses the button in focus; on an image of a group it is the key of the group.
  if (key === "Enter" && event.target.closest("button, a, summary") && !event.target.closest("#group")) return;
  if (state.view === "grid" && key.startsWith("Arrow")) {
    event.preventDefault();
    return sheet.start();
  }
  const found = [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key && one.offsetParent);
  if (!FOCUS[key] && !found) return;
  event.preventDefault();
  if (FOCUS[key]) FOCUS[key]();
  else found.click();
}
