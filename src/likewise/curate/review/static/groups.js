// Groups: labels that are decided at once. Enter accepts the selected suggestions and keeps the labels of the exceptions (`state.kept`),
// in one decision. All are selected at first, but for suggestions with a probability below 1/2: they are open (`state.open`) until the
// reviewer chooses, and remain when the others are decided.
import { byId, say } from "/static/server.js";
import { bold, broken, details, isWeak, make, percent, picture, plural, set, source, state, zoom } from "/static/elements.js";
import { strip, zoomable } from "/static/item.js";

const HOLD = 450; // milliseconds of a long press
const SMALL = 8; // images of a group that shares its screen
const PHONE = matchMedia("(max-width: 760px)");
const most = () => PHONE.matches ? 6 : 24; // images of a screen with several suggestions: on a phone their names need the room
const LARGEST = 300, SMALLEST = 56; // sides of an image
let hooks = { changed: () => undefined };

export const hook = (given) => { hooks = given; };
export const chosen = () => state.group ? state.group.tiles.filter((tile) => !state.kept.has(tile.item) && !state.open.has(tile.item)) : [];
export const isCopies = () => Boolean(state.group) && state.group.tiles.length === 1 && state.group.tiles[0].rows.length > 1;

// The groups of the plan with the labels that are still open, were not skipped, and match the filter.
function open() {
  const there = new Map(state.tiles.map((tile) => [tile.item, tile]));
  const left = (group) => group.items.map((item) => there.get(item)).filter((tile) => tile && !tile.choice && !state.skipped.has(tile.item));
  const groups = (state.plan ? state.plan.groups : []).map((group) => ({ ...group, tiles: left(group) }));
  return merged(groups.filter((group) => group.tiles.length));
}

// The selection at first.
function begin() {
  state.kept.clear();
  state.open = new Set((state.group ? state.group.tiles : []).filter(isWeak).map((tile) => tile.item));
}

// A group whose images have different suggestions, in parts of one screen each.
const parts = (group) => group.kind !== "each" ? [group]
  : Array.from({ length: Math.ceil(group.tiles.length / most()) }, (_, i) => ({ ...group, tiles: group.tiles.slice(i * most(), (i + 1) * most()) }));

// Small groups share a screen, at the place of the first of them: every image shows its own suggestion.
function merged(groups) {
  const found = [];
  let shared = null;
  for (const group of groups.flatMap(parts)) {
    const small = group.tiles.length < SMALL && (group.kind === "same" || group.kind === "each");
    if (small && shared && shared.tiles.length + group.tiles.length <= most()) Object.assign(shared, { kind: "each", suggested: "", given: "", tiles: [...shared.tiles, ...group.tiles] });
    else {
      found.push(group);
      if (small) shared = group;
    }
  }
  return found;
}

export function next() {
  [state.group = null] = open();
  begin();
  return state.group;
}

// The rest of the group after a decision about some of its labels.
export function rest() {
  const tiles = state.group ? state.group.tiles.filter((tile) => !tile.choice) : [];
  if (!tiles.length) return next();
  state.group = { ...state.group, tiles };
  begin();
  return state.group;
}

export function skip() {
  state.group.tiles.forEach((tile) => state.skipped.add(tile.item));
  next();
}

// A group of labels that were decided elsewhere, for an undo.
export function together(tiles, kept = []) {
  const same = (values) => new Set(values).size === 1 ? values[0] : "";
  const suggested = same(tiles.map((tile) => tile.suggested)), given = same(tiles.map((tile) => tile.label));
  const off = tiles.every((tile) => tile.state === "off-topic");
  state.group = { kind: off ? "off-topic" : suggested || (given && tiles[0].question) ? "same" : "each", suggested, given, tiles, items: tiles.map((tile) => tile.item) };
  state.kept = new Set(kept);
  state.open = new Set();
}

const suggestion = (tile) => state.group.kind === "same" && state.group.suggested && !tile.question ? state.group.suggested : tile.suggested;

// What it means to accept the suggestion about a label.
export function accepted(tile) {
  if (tile.question) return { tile, choice: tile.question === "missing" ? "add" : "remove" };
  if (state.group.kind === "off-topic" || tile.state === "off-topic") return { tile, choice: "remove" };
  return suggestion(tile) ? { tile, choice: "relabel", label: suggestion(tile) } : { tile, choice: "keep" };
}

export const decision = () => state.group.tiles.filter((tile) => !state.open.has(tile.item)).map((tile) => state.kept.has(tile.item) ? { tile, choice: "keep" } : accepted(tile));

export function acceptWords() {
  const n = chosen().length, kept = state.kept.size, verb = state.group.kind === "off-topic" ? "Remove" : "Accept";
  return !n && !kept ? verb : n ? `${verb} ${n}${kept ? `, keep ${kept}` : ""}` : `Keep ${kept}`;
}

function named(names) {
  const count = new Map();
  names.forEach((name) => count.set(name, (count.get(name) || 0) + 1));
  const first = [...count].sort((a, b) => b[1] - a[1]).map(([name]) => name), shown = first.slice(0, first.length > 4 ? 3 : 4);
  const tail = first.length - shown.length, words = [];
  shown.forEach((name, i) => words.push(i ? (i === shown.length - 1 && !tail ? " and " : ", ") : "", bold(name)));
  return [...words, tail ? ` and ${plural(tail, "other class", "other classes")}` : ""];
}

function headline() {
  const { kind, tiles } = state.group, n = tiles.length, [first] = tiles;
  const images = n === 1 ? "This image" : `${n} images`;
  if (kind === "off-topic") return [n === 1 ? "This image seems to fit no class." : `${n} images seem to fit no class.`, " Labelled ", ...named(tiles.map((tile) => tile.label)), "."];
  if (first.question && kind === "same") {
    return first.question === "missing" ? [`${images} may lack the label `, bold(first.label), "."] : [`${images} ${n === 1 ? "has" : "have"} the label `, bold(first.label), ", probably wrongly."];
  }
  if (kind === "same") return [images, n === 1 ? " looks like " : " look like ", make("b", "asked", ...broken(suggestion(first))), ". Labelled ", ...named(tiles.map((tile) => tile.label)), "."];
  return n === 1 ? ["One image with its own suggestion."] : [`${n} images, each with its own suggestion.`];
}

// What the marks on the images mean, in one line.
function instruction() {
  const { kind, tiles: [first] } = state.group, label = kind === "same" ? "the label" : "its label";
  const effect = kind === "off-topic" ? "is removed" : first.question ? `${first.question === "missing" ? "gets" : "loses"} ${label}` : "gets the suggested label";
  const unmarked = state.group.tiles.some(isWeak) ? " Without a mark (below 50 %): stays open." : "";
  return `Marked ✓: ${effect}. Marked keep: stays as it is.${unmarked} ${PHONE.matches ? "Tap" : "Click"} an image to change its mark.`;
}

// Words under an image: only what the headline does not say.
function words(tile) {
  const { kind, given } = state.group;
  if (tile.question) return kind === "same" ? [] : [make("span", "new", tile.question === "missing" ? "+ " : "− ", ...broken(tile.label))];
  const own = kind === "same" && given ? null : make("span", "given", ...broken(tile.label));
  const sure = typeof tile.probability === "number" ? `${percent(tile.probability)} ` : ""; // first, because long names are cut
  return [own, kind === "each" && suggestion(tile) ? make("span", "new", `${sure}→ `, ...broken(suggestion(tile))) : null].filter(Boolean);
}

function said(tile) {
  const change = tile.question ? `${tile.label} ${tile.question}` : `${tile.label}${suggestion(tile) ? `, looks like ${suggestion(tile)}` : ", fits no class"}`;
  return `${change}, ${tile.name}${tile.probability === null || tile.probability === undefined ? "" : `, ${percent(tile.probability)}`}`;
}

const large = (tile) => zoom(state.group.tiles.flatMap((one) => zoomable(one)), state.group.tiles.indexOf(tile));

const isLarge = (group) => group.tiles.length <= 8;

// A tap selects, a long press shows the image large.
function touch(pick, tile) {
  let timer = 0, held = false;
  const stop = () => clearTimeout(timer);
  pick.onpointerdown = (event) => {
    held = false;
    if (event.pointerType !== "mouse") timer = setTimeout(() => { held = true; large(tile); }, HOLD);
  };
  pick.onpointerup = stop;
  pick.onpointercancel = stop;
  pick.onpointerleave = stop;
  pick.oncontextmenu = (event) => event.preventDefault();
  pick.onclick = () => { if (!held) toggle(tile); };
}

function card(tile) {
  const under = words(tile);
  const pick = make("button", "pick", make("span", "frame", picture(tile.rows[0], tile.name, "", isLarge(state.group))), under.length ? make("span", "words", ...under) : null);
  pick.querySelectorAll("img").forEach((image) => { image.alt = ""; });
  set(pick, { type: "button", tabIndex: -1, ariaLabel: said(tile), title: said(tile), onfocus: () => examples(tile) });
  touch(pick, tile);
  const look = set(make("button", "look", "⤢"), { type: "button", tabIndex: -1, title: "Show it large (Z)", ariaLabel: `Show ${tile.name} large`, onclick: () => large(tile) });
  const one = make("div", "tile", pick, look);
  one.dataset.item = tile.item;
  return one;
}

function toggle(tile) {
  if (!state.group?.tiles.includes(tile)) return;
  if (state.open.has(tile.item)) state.open.delete(tile.item);
  else if (state.kept.has(tile.item)) state.kept.delete(tile.item);
  else state.kept.add(tile.item);
  focus(state.group.tiles.indexOf(tile));
  mark();
}

export function select(all) {
  state.open.clear();
  state.kept = new Set(all ? [] : state.group.tiles.map((tile) => tile.item));
  mark();
  focus(Math.max(state.group.tiles.indexOf(focused()), 0));
}

const cards = () => [...document.querySelectorAll("#group .tile")];

function mark() {
  const chosenItems = new Set(chosen().map((tile) => tile.item));
  cards().forEach((one) => {
    one.firstChild.setAttribute("aria-pressed", String(chosenItems.has(one.dataset.item)));
    one.classList.toggle("open", state.open.has(one.dataset.item));
  });
  hooks.changed();
}

function focus(at) {
  cards().forEach((one, i) => { one.firstChild.tabIndex = i === at ? 0 : -1; });
  cards()[at]?.firstChild.focus({ preventScroll: false });
}

export const focused = () => state.group?.tiles.find((tile) => tile.item === document.activeElement?.closest("#group .tile")?.dataset.item);

// The image in focus, large; without focus the first one.
export function showLarge() {
  const tile = focused() || state.group?.tiles[0];
  if (tile) large(tile);
}

// Arrows move, Space selects; from anywhere on the page.
export function keys(event) {
  const columns = Number(byId("group")?.dataset.columns || 1), here = state.group.tiles.indexOf(focused());
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  if (by !== undefined) focus(here < 0 ? 0 : Math.min(Math.max(here + by, 0), state.group.tiles.length - 1));
  else if (event.key === " " && here >= 0) toggle(state.group.tiles[here]);
  else return false;
  event.preventDefault();
  return true;
}

// As large as all images fit into the screen.
function fit() {
  const box = byId("group");
  if (!box || !state.group) return;
  const n = state.group.tiles.length, edge = 2 * parseFloat(getComputedStyle(box).paddingLeft);
  const width = box.clientWidth - edge, height = box.clientHeight - edge, gap = parseFloat(getComputedStyle(box).columnGap);
  if (PHONE.matches && box.classList.contains("each")) { // three columns, and as much room for the names as they need
    const side = Math.floor(Math.min((width - 2 * gap) / 3, LARGEST));
    box.style.gridTemplateColumns = `repeat(3, ${side}px)`;
    box.style.setProperty("--size", `${side}px`);
    box.dataset.columns = "3";
    return;
  }
  const under = box.querySelector(".words"), text = under ? under.offsetHeight + 3 : 0;
  const sizes = [...Array(n).keys()].map((i) => {
    const columns = i + 1, rows = Math.ceil(n / columns);
    return Math.min((width - gap * (columns - 1)) / columns, (height - gap * (rows - 1)) / rows - text, LARGEST);
  });
  const best = Math.max(...sizes), size = Math.floor(Math.max(best, SMALLEST));
  const columns = best < SMALLEST ? Math.max(1, Math.floor((width + gap) / (SMALLEST + gap))) : sizes.findIndex((one) => one >= best - 0.01) + 1;
  box.style.gridTemplateColumns = `repeat(${columns}, ${size}px)`;
  box.style.setProperty("--size", `${size}px`);
  box.dataset.columns = String(columns);
}

const watcher = new ResizeObserver(fit);

// Exemplars of the given and the suggested class of the image in focus.
async function examples(tile) {
  const side = byId("examples");
  if (!side || side.dataset.item === tile.item) return;
  side.dataset.item = tile.item;
  try {
    const [panel] = (await details(tile.item)).panels;
    if (byId("examples") !== side || side.dataset.item !== tile.item) return;
    const found = tile.question ? [strip("instead", "With", tile.label, panel.with), strip("claimed", "Without", tile.label, panel.without)]
      : [tile.suggested ? strip("instead", "Examples of", tile.suggested, panel.instead) : null, strip("claimed", "Examples of", tile.label, panel.claimed)];
    side.replaceChildren(...found.filter(Boolean));
  } catch (error) {
    say(error.message, true);
  }
}

export function drawGroup() {
  const { tiles } = state.group, main = byId("main"), left = open().length;
  const box = set(make("div", `group ${state.group.kind}`, ...tiles.map(card)), { id: "group" });
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Images of this decision");
  const all = set(make("button", "", "All", make("kbd", "", "A")), { type: "button", title: "Select all (A)", onclick: () => select(true) });
  const none = set(make("button", "", "None", make("kbd", "", "Esc")), { type: "button", title: "Select none (Esc)", onclick: () => select(false) });
  all.dataset.key = "a";
  none.dataset.key = "Escape";
  const count = make("span", "quiet", plural(left, "group left", "groups left"));
  main.className = "groups";
  main.replaceChildren(make("div", "top", make("h2", "question", ...headline()), count, tiles.length > 1 ? make("span", "together", all, none) : null,
    make("p", "quiet how", instruction())),
    make("div", "body", box, set(make("aside", "examples"), { id: "examples", ariaLabel: "Examples of the classes" })));
  fit();
  watcher.disconnect();
  watcher.observe(box);
  mark();
  cards()[0].firstChild.tabIndex = 0;
  if (document.querySelector("dialog[open]") || document.activeElement.matches("input, select, textarea")) examples(tiles[0]);
  else focus(0);
  examples(tiles[0]);
}

// Images of the next group, loaded in advance.
export function ahead() {
  const [, after] = open();
  if (!after) return;
  details(after.tiles[0].item).catch(() => undefined);
  if (state.about.pictures) after.tiles.forEach((tile) => { new Image().src = source(tile.rows[0], isLarge(after)); });
}
