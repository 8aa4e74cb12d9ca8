// Buttons of the footer and their keys. An action is [key, words, what it does, title, choice, disabled]; `does` has what they call.
import { byId } from "/static/server.js";
import { bold, broken, isWeak, make, percent, plural, quoted, set, state } from "/static/elements.js";
import * as sheet from "/static/grid.js";
import * as groups from "/static/groups.js";

let does = {};
export const hook = (given) => { does = given; };

function actions(tile) {
  if (state.view === "grid") return gridActions();
  if (state.view === "groups" && !state.aside && state.group) return groupActions();
  if (!tile) return [];
  if (tile.type) return [["y", "Yes, a person would too", () => does.decide("agreeable"), "Hard to tell apart for people too", "agreeable"], ["n", "No", () => does.decide("disagreeable"), "The model misses what a person sees", "disagreeable"]];
  return tile.question ? labelActions(tile) : sampleActions(tile);
}

function sampleActions(tile) {
  const { decide, other } = does, many = tile.rows.length > 1;
  const last = [["l", "Other label…", other, "Any class, or a new one"], ["x", many ? (tile.rows.length === 2 ? "Remove both" : "Remove all") : "Remove", () => decide("remove"), "It belongs to no class", "remove"],
    ["u", "Unsure", () => decide("unsure"), "Leave the decision to others", "unsure"]];
  if (many) return [...[...new Set(tile.labels)].slice(0, 9).map((label, i) => [String(i + 1), ["It is ", label], () => decide("relabel", label), `All copies get the label ${label}`, `label ${label}`]), ...last];
  return [["k", ["Keep ", tile.label], () => decide("keep"), "The label is right", "keep"],
    ...(tile.suggested ? [["r", ["Change to ", tile.suggested], () => decide("relabel", tile.suggested), "Give it the suggested label", "relabel"]] : []), ...last];
}

// What the audit suggests about a label of a sample with several labels.
const change = (tile) => tile.question === "missing" ? "add" : "remove";

function labelActions(tile) {
  const { decide } = does, missing = tile.question === "missing";
  return [["r", [missing ? "Add " : "Remove ", tile.label], () => decide(change(tile)), missing ? "The image has this label" : "The image does not have this label", change(tile)],
    ["k", missing ? "Not missing" : ["Keep ", tile.label], () => decide("keep"), "The labels are right as they are", "keep"],
    ["u", "Cannot tell", () => decide("unsure"), "Leave the decision to others", "unsure"]];
}

function gridLabelActions(tiles) {
  const accept = () => does.commit(tiles.map((tile) => ({ tile, choice: change(tile) })));
  return [["r", `Accept ${plural(tiles.length, "suggestion")}`, accept, "Add the missing and remove the superfluous labels that are selected", "relabel"],
    ["k", `Keep ${tiles.length}`, () => does.all("keep"), "The selected images keep their labels", "keep"], ["Escape", "Select none", () => sheet.clear(), "Select none (Esc)"]];
}

function gridActions() {
  const tiles = sheet.selected(), n = tiles.length, able = tiles.filter((tile) => tile.suggested).length;
  if (!n) return [];
  if (tiles[0].question) return gridLabelActions(tiles);
  return [["r", `Accept ${able === n ? plural(n, "suggestion") : `${able} of ${n} suggestions`}`, () => does.all("relabel", (tile) => tile.suggested), "Change the selected labels to the suggested ones", "relabel", !able],
    ["k", `Keep ${plural(n, "label")}`, () => does.all("keep"), "The selected labels are right", "keep"], ["l", "Other label…", does.other, "One class for all that are selected"],
    ["x", `Remove ${n}`, () => does.all("remove"), "The selected images belong to no class", "remove"], ["Escape", "Select none", () => sheet.clear(), "Select none (Esc)"]];
}

function groupActions() {
  const n = groups.chosen().length, skip = ["s", "Skip", does.skip, "Leave this group for later"];
  if (groups.isCopies()) return [...sampleActions(state.group.tiles[0]), skip];
  const some = (choice) => does.commit(groups.chosen().map((tile) => ({ tile, choice }))), label = Boolean(state.group.tiles[0].question), off = state.group.kind === "off-topic";
  const of = n === state.group.tiles.length ? "" : ` ${n}`;
  return [["Enter", groups.acceptWords(), () => does.commit(groups.decision()), "Accept the suggestions that are selected, and keep the labels of the others (Enter)", n || !state.kept.size ? "relabel" : "keep", !n && !state.kept.size],
    ["k", "Keep all", () => does.commit(state.group.tiles.map((tile) => ({ tile, choice: "keep" }))), "All these labels are right", "keep all"],
    ...(label ? [] : [["l", `Other label…`, does.other, "One class for all that are selected", "", !n]]),
    ...(label || off ? [] : [["x", `Remove${of}`, () => some("remove"), "The selected images belong to no class", "", !n]]),
    ["u", `Unsure${of}`, () => some("unsure"), "Leave the decision about the selected images to others", "", !n], skip];
}

function button([key, words, act, title, choice, off]) {
  const parts = Array.isArray(words) ? [words[0], make("span", "name", ...broken(quoted(words[1])))] : [words];
  const shown = key.length === 1 ? key.toUpperCase() : { Backspace: "⌫", Escape: "Esc", Enter: "Enter" }[key];
  const one = make("button", (choice || "other").split(" ")[0], make("span", "text", ...parts), shown ? make("kbd", "", shown) : null);
  set(one, { type: "button", title, disabled: Boolean(off), onclick: () => act() });
  one.dataset.key = key;
  if (!shown) one.ariaLabel = title;
  return one;
}

const MOVES = [["Backspace", "Undo", () => does.undo(), "Undo (Backspace)"], ["ArrowLeft", "←", () => does.go(-1), "Back (←)"], ["ArrowRight", "→", () => does.go(1), "Next (→)"]];

// Why the audit suggests to remove an image although its label is wrong: no other label is likely enough.
function removalReason(tile) {
  if (tile.state === "off-topic") return tile.probability === null ? ["fits no class"] : [`fits no class: ${percent(tile.probability)}`];
  return tile.suggested && tile.probability !== null ? ["no likely label: ", bold(tile.suggested), ` has ${percent(tile.probability)}`] : ["no likely label"];
}

export function drawFooter(tile) {
  const found = actions(tile).map((action) => {
    const one = button(action), choice = action[4];
    if (!tile || !choice || state.view === "grid") return [one];
    const chosen = tile.rows.length > 1 && !tile.type ? `label ${tile.choice === "relabel" ? tile.new_label : tile.choice === "keep" ? tile.label : ""}` : tile.choice;
    one.classList.toggle("chosen", Boolean(tile.choice) && (choice === chosen || choice === tile.choice));
    const kept = tile.rows.length > 1 ? `label ${tile.likely}` : tile.advice;
    one.classList.toggle("advised", !tile.choice && Boolean(tile.flagged) && choice === kept && !(choice === "relabel" && isWeak(tile)));
    if (!one.classList.contains("advised")) return [one];
    if (tile.rows.length > 1) return [one, make("span", "why", "likely right")];
    return choice === "remove" && !tile.question ? [one, make("span", "why", ...removalReason(tile))] : [one];
  }).flat();
  byId("actions").replaceChildren(...found);
  byId("moves").replaceChildren(...(state.view === "one" ? MOVES : MOVES.slice(0, 1)).map(button));
  if (state.view === "one") byId("moves").children[1].after(set(make("span"), { id: "place" }));
  byId("note").hidden = !found.length;
  document.body.classList.toggle("idle", !found.length);
}
