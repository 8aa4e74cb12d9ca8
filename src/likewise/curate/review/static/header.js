// What the page says about where the reviewer is: views, progress, place in the queue.
import { byId } from "/static/server.js";
import { make, reviewer, state } from "/static/elements.js";

export function place() {
  const { tiles, at, aside } = state, flagged = tiles.filter((tile) => tile.flagged || tile.type).length;
  if (!byId("place")) return;
  const beyond = at >= flagged && at < tiles.length;
  const whole = `${flagged}${state.next !== null && !state.beyond ? "+" : ""}`; // more are loaded when they are needed
  byId("place").textContent = aside ? "aside" : beyond ? `+ ${at - flagged + 1}` : flagged ? `${Math.min(at + 1, flagged)} / ${whole}` : "";
}

export function count(answer) {
  if (answer.kind && answer.kind !== state.kind) return;
  byId("bar").max = Math.max(answer.whole, 1);
  byId("bar").value = answer.done;
  byId("count").replaceChildren(`${answer.done.toLocaleString("en")} of ${answer.whole.toLocaleString("en")}`, make("span", "wide", " reviewed"));
}

export function showReviewer() {
  byId("who").replaceChildren(...(reviewer() ? [make("span", "wide", "Reviewer: "), reviewer()] : ["Your name"]));
}

export function tabs() {
  byId("one").setAttribute("aria-pressed", String(state.view === "one" && state.kind !== "pair"));
  byId("grid").setAttribute("aria-pressed", String(state.view === "grid"));
  byId("groups").setAttribute("aria-pressed", String(state.view === "groups"));
  byId("finish").hidden = state.view === "end";
  byId("pairs").setAttribute("aria-pressed", String(state.view === "one" && state.kind === "pair"));
}
