"use strict";
// State: `asked` is the query, a file or a row; everything shown follows from it. Responses to older queries are dropped.
// Every query is an entry of the browser's history: a row is in its address (#row=5), a file in `files`, which a reload empties.

const byId = (id) => document.getElementById(id);
const state = { about: null, levels: null, asked: null, told: null, turn: 0, history: [], terms: [], files: new Map() };
const several = () => state.about.labels !== null; // rows have several labels each
const labels = () => state.about.labels ?? state.about.classes;
const MAX_OFFERED = 1000; // names in the list of a field
const MAX_HISTORY = 24; // earlier queries that are shown

function make(kind, className, ...children) {
  const one = document.createElement(kind);
  one.className = className || "";
  one.append(...children.filter((child) => child !== null));
  return one;
}

// A name with line breaks allowed after underscores, because many names have no spaces.
const broken = (name) => name.split(/(?<=[_.])/).flatMap((part, i) => i ? [make("wbr"), part] : [part]);

function say(text, wrong) {
  byId("said").textContent = text;
  byId("said").classList.toggle("wrong", Boolean(wrong));
  if (text) byId("said").scrollIntoView({ block: "nearest" });
}

// A text as part of an address. Names may have bytes that are not UTF-8: the server sends byte FF as the lone surrogate \udcff.
const encoded = (text) => String(text).split(/([\udc80-\udcff])/u)
  .map((part, i) => i % 2 ? "%" + (part.charCodeAt(0) - 0xdc00).toString(16) : encodeURIComponent(part)).join("");

async function ask(address, query, asked = {}) {
  let answer;
  try {
    const words = Object.entries(query || {}).map(([name, text]) => `${name}=${encoded(text)}`).join("&");
    answer = await fetch(address + (words && `?${words}`), asked);
  } catch {
    throw new Error("The server does not respond. Start it again with `likewise search`, then try again.");
  }
  const told = (answer.headers.get("content-type") || "").includes("json") ? await answer.json() : { error: await answer.text() };
  const wrong = (told.error || `The server responded with status ${answer.status}.`).replace(/^search: /, "");
  if (!answer.ok) throw new Error(wrong[0].toUpperCase() + wrong.slice(1) + (wrong.endsWith(".") ? "" : "."));
  return told;
}

const number = (value) => value.toLocaleString("en");
const percent = (share) => (100 * share).toFixed(1).replace(/\.0$/, "");
const source = (row, large) => `/picture/${row}?start=${state.about.start}${large ? "&large=true" : ""}`;

function picture(row, large) {
  if (!state.about.pictures) return make("span", "id", `row ${row}`);
  const image = make("img");
  image.alt = "";
  image.src = source(row, large);
  if (!large) image.loading = "lazy";
  image.onerror = () => image.replaceWith(make("span", "id", `row ${row}: its image is missing`));
  return image;
}

function bar(value) {
  const one = make("progress");
  one.value = Math.max(0, Math.min(1, value));
  return one;
}

// Length of a bar: the cosine, or the distance relative to the nearest result.
const share = (hit, first) => state.about.similarity === "cosine" ? hit.similarity : (1 + Math.abs(first.similarity)) / (1 + Math.abs(hit.similarity));
const near = (hit) => state.about.similarity === "cosine" ? hit.similarity.toFixed(3) : `distance ${Math.abs(hit.similarity).toPrecision(3)}`;

// A label as a chip; `shared`: the query has it too. A click filters by it.
function chip(label, shared) {
  const one = Object.assign(make("button", shared ? "chip shared" : "chip", label), { type: "button", onclick: () => addTerm(label, false) });
  one.title = `${shared ? "The query has this label too. " : ""}Only images with this label`;
  return one;
}

// The labels of a result as chips, labels of the query first; its class if rows have one label each.
function names(hit, query) {
  if (!hit.labels) return make("div", "class", ...broken(hit.class));
  const ours = new Set(query?.labels ?? []), order = (label) => Number(!ours.has(label));
  return make("div", "chips", ...[...hit.labels].sort((a, b) => order(a) - order(b)).map((label) => chip(label, ours.has(label))));
}

// How much of its labels a result has in common with the query, 0 to 1; null if one of them has no labels.
function relevance(hit) {
  if (typeof hit.relevance !== "number") return null;
  const words = `Relevance ${hit.relevance.toFixed(2)}`, one = bar(hit.relevance);
  one.className = "relevance";
  one.setAttribute("aria-label", words);
  return make("div", "relevant", one, make("span", "", words));
}

const title = (hit) => hit.name || `row ${hit.row}`;

// The similarity of a result in words: a level of the index, see `deploy/index/reading.py`; null if it has none.
function reading(hit) {
  const { levels } = state;
  if (!levels) return null;
  const word = hit.similarity >= levels.same ? "same" : hit.similarity >= levels.similar ? "similar" : "weak";
  return make("span", `reading ${word}`, word);
}

// What the words of `reading` mean here.
function showMeaning(shown) {
  const { levels } = state;
  byId("meaning").hidden = !levels || !shown || several();
  if (!levels || several()) return;
  const [same, similar] = [levels.same, levels.similar].map((similarity) => near({ similarity }));
  byId("meaning").replaceChildren(make("summary", "", "What same, similar and weak mean"),
    make("p", "", `Same: ${same} or nearer (${levels.source}). Similar: ${similar} or nearer. Weak: half of the images here have an image of another class that is this similar or more, so the class may well be another one.`));
}

const closeness = (hit) => state.about.similarity === "cosine" ? `Similarity ${near(hit)}` : near(hit)[0].toUpperCase() + near(hit).slice(1);

// A result among `all` that are shown; `first` is the nearest result, undefined for rows that are not results.
function card(hit, first, all, query) {
  const button = make("button", "pic", picture(hit.row));
  button.title = `Search with ${title(hit)}`;
  button.onclick = () => search({ row: hit.row });
  const look = Object.assign(make("button", "look", "⤢"), { type: "button", title: "Enlarge", onclick: () => enlarge(hit, all) });
  look.setAttribute("aria-label", `Enlarge ${title(hit)}`);
  const file = make("div", "file", ...broken(title(hit)));
  file.title = hit.path || title(hit);
  const measured = first ? bar(share(hit, first)) : null;
  if (measured) measured.setAttribute("aria-label", closeness(hit));
  return make("figure", "card", button, state.about.pictures ? look : null, measured,
    first ? make("div", "fact", make("span", "", closeness(hit)), several() ? null : reading(hit)) : null,
    relevance(hit), names(hit, query), file);
}

// Show an image in large, with its path; the arrow keys go to the other results.
function enlarge(hit, all) {
  const place = all.indexOf(hit), to = (step) => () => { if (all[place + step]) enlarge(all[place + step], all); };
  const image = Object.assign(make("img"), { src: source(hit.row, true), alt: title(hit) });
  image.onerror = () => image.replaceWith(make("span", "id", `${title(hit)}: its image is missing`));
  const path = make("span", "path", hit.path || title(hit));
  const name = hit.labels ? make("b", "", hit.labels.join(" · ")) : make("b", "", ...broken(hit.class));
  byId("zoom").querySelector("figure").replaceChildren(image, name, path);
  byId("zoom-search").onclick = () => { byId("zoom").close(); search({ row: hit.row }); };
  byId("zoom-open").href = source(hit.row, true);
  byId("zoom-copy").hidden = !hit.path;
  byId("zoom-copy").textContent = "Copy path";
  byId("zoom-copy").onclick = () => copy(hit.path, path);
  [byId("zoom-before").onclick, byId("zoom-after").onclick] = [to(-1), to(1)];
  [byId("zoom-before").disabled, byId("zoom-after").disabled] = [place <= 0, place + 1 >= all.length];
  byId("zoom").onkeydown = (event) => ({ ArrowLeft: to(-1), ArrowRight: to(1) })[event.key]?.();
  if (!byId("zoom").open) byId("zoom").showModal();
}

// Copy a text; where the browser forbids it, select the text, so that a key copies it.
async function copy(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    byId("zoom-copy").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(shown);
    byId("zoom-copy").textContent = "Press Ctrl-C";
  }
}

function showQuery(query) {
  const { asked } = state;
  const image = query.preview ? Object.assign(make("img"), { src: query.preview, alt: "the query" }) : picture(asked.row, true);
  const words = asked.file ? [make("b", "", ...broken(asked.file.name || "pasted image"))]
    : [query.labels ? names(query) : make("b", "", ...broken(query.class)), Object.assign(make("span", "", title({ ...query, row: asked.row })), { title: query.path || "" })];
  byId("query").replaceChildren(image, make("figcaption", "", ...words));
  byId("query").hidden = byId("actions").hidden = false;
  byId("drop").hidden = true;
  byId("add").hidden = !(asked.file && state.about.changes);
  byId("remove").hidden = !(asked.file === undefined && state.about.changes);
  unsure();
}

// Probability in percent, never rounded to 0 or 100.
const chance = (share) => share < 0.01 ? "< 1 %" : share > 0.99 ? "> 99 %" : `${Math.round(100 * share)} %`;

const measure = (words, value, ...bars) => make("div", "vote", make("span", "", ...words), make("span", "", value), ...bars);

// The similarity of the nearest row as a bar, with a mark at the threshold.
function similarityBar(told) {
  const cosine = state.about.similarity === "cosine", [at, least] = [Math.abs(told.similarity), Math.abs(told.threshold)];
  const mark = make("i", "mark"), holder = make("div", "scale", bar(cosine ? told.similarity : least / (at + least || 1)), mark);
  mark.style.left = `${100 * (cosine ? Math.max(0, Math.min(1, told.threshold)) : 0.5)}%`;
  const value = (hit) => near(hit).replace("distance ", "");
  return measure([`${cosine ? "Similarity" : "Distance"} (threshold ${value({ similarity: told.threshold })})`], value(told), holder);
}

// Known or unknown: the class or "Unknown", similarity and probability as bars, and the promise of the threshold.
function showDecision(told) {
  const decided = typeof told.probability === "number", undecided = told.unknown === null;
  byId("decision").hidden = !decided;
  byId("decision").className = !decided || undecided ? "" : told.unknown ? "unknown" : "known";
  byId("found").classList.toggle("strangers", Boolean(decided && told.unknown));
  if (!decided) return;
  const chanceBar = measure(told.unknown ? ["If it is a known class: ", ...broken(told.nearest)] : ["Probability of this class"],
    chance(told.probability), bar(told.probability));
  if (undecided) {
    const reason = make("p", "quiet", `Known or unknown cannot be decided: ${told.reason}.`);
    byId("decision").replaceChildren(make("b", "", ...broken(told.nearest)), chanceBar, reason);
    return;
  }
  const classes = number(state.about.classes.length), sign = make("span", "sign", told.unknown ? "?" : "✓");
  sign.setAttribute("aria-hidden", "true");
  const head = make("div", "head", sign, make("div", "", make("b", "", ...(told.unknown ? ["Unknown"] : broken(told.label))),
    make("span", "", told.unknown ? `not near enough to any of the ${classes} known classes` : `one of the ${classes} known classes`)));
  const promise = make("details", "", make("summary", "", "What the threshold promises"), make("p", "", state.about.promise),
    ...(state.about.hint ? [make("p", "", `But ${state.about.hint}.`)] : []));
  byId("decision").replaceChildren(head, similarityBar(told), chanceBar, promise);
}

// Of results with several labels each, the labels are counted in place of the classes.
function votesOf(told) {
  if (!several()) return told.votes;
  const count = new Map();
  for (const label of told.found.flatMap((hit) => hit.labels)) count.set(label, (count.get(label) || 0) + 1);
  return [...count].sort((a, b) => b[1] - a[1]).map(([label, times]) => ({ class: label, count: times }));
}

function showVotes(votes, whole) {
  byId("votes").hidden = !whole;
  byId("votes").replaceChildren(...votes.slice(0, 5).map((vote) =>
    make("div", "vote", make("span", "", ...broken(vote.class)), make("span", "", `${vote.count} of ${whole}`), bar(vote.count / whole))),
    ...(votes.length > 5 ? [make("span", "quiet", `${votes.length} ${several() ? "labels" : "classes"} in all`)] : []));
}

function showFound(found, query) {
  const why = state.terms.length ? "No other image passes the filter. Remove a label from it." : "There is no other image.";
  const none = make("p", "empty", make("b", "", "Nothing found"), why);
  byId("found").replaceChildren(...(found.length ? found.map((hit) => card(hit, found[0], found, query)) : [none]));
}

// The filter as the server reads it: labels in double quotes, ! before those that must not be there.
const filterText = () => state.terms.map(({ label, not }) => `${not ? "!" : ""}"${label.replaceAll('"', '""')}"`).join(" & ");

function addTerm(label, not) {
  state.terms = [...state.terms.filter((term) => term.label !== label), { label, not }];
  showTerms();
  again();
}

// The labels of the filter as chips: a click turns "with" into "without", the cross removes the label.
function showTerms() {
  byId("terms").replaceChildren(...state.terms.map((term) => {
    const turn = Object.assign(make("button", "", make("i", "", term.not ? "without " : ""), term.label), { type: "button",
      title: term.not ? "Without this label; click for images with it" : "With this label; click for images without it",
      onclick: () => { term.not = !term.not; showTerms(); again(); } });
    const drop = Object.assign(make("button", "drop", "×"), { type: "button",
      onclick: () => { state.terms = state.terms.filter((one) => one !== term); showTerms(); again(); } });
    drop.setAttribute("aria-label", `Remove ${term.label} from the filter`);
    return make("span", term.not ? "term not" : "term", turn, drop);
  }));
}

// Offer names in the field of a list: those with the text that was typed, as a browser is slow with a hundred thousand.
function offer(list, names) {
  const field = document.querySelector(`input[list=${list}]`);
  field.oninput = () => {
    const typed = names.length > MAX_OFFERED ? field.value.trim().replace(/^[!-]/, "").toLowerCase() : "";
    const like = typed ? names.filter((name) => name.toLowerCase().includes(typed)) : names;
    byId(list).replaceChildren(...like.slice(0, MAX_OFFERED).map((name) => Object.assign(make("option"), { value: name })));
  };
  field.oninput();
}

// Take the label that was typed or chosen; "!" or "-" before it excludes it.
function takeTerm() {
  const text = byId("within").value.trim(), known = new Set(labels());
  if (!text) return;
  const not = !known.has(text) && /^[!-]/.test(text), label = not ? text.slice(1).trim() : text;
  if (!known.has(label)) { say(`No image has the label ${label}.`, true); return; }
  byId("within").value = "";
  say("");
  addTerm(label, not);
}

function remember(query) {
  const { asked } = state;
  const same = (one) => asked.file ? one.asked.file === asked.file : one.asked.row === asked.row;
  state.history = [{ asked, preview: query.preview, name: query.name }, ...state.history.filter((one) => !same(one))].slice(0, MAX_HISTORY);
  byId("history").hidden = state.history.length < 2;
  byId("history").replaceChildren(...state.history.map((one) => {
    const image = one.preview ? Object.assign(make("img"), { src: one.preview, alt: "an earlier query" }) : picture(one.asked.row);
    const button = make("button", "", image);
    button.title = one.asked.file ? one.asked.file.name || "pasted image" : title({ ...one, row: one.asked.row });
    button.onclick = () => search(one.asked);
    return button;
  }));
}

// The query of the current entry of the browser's history; null: the start page, or a file that a reload lost.
function visited() {
  const row = /^#row=(\d+)$/.exec(location.hash), file = state.files.get(history.state);
  return row ? { row: Number(row[1]) } : file ? { file } : null;
}

function visit(asked) {
  const now = visited();
  if (now && now.file === asked.file && now.row === asked.row) return;
  const key = asked.file ? Math.random() : null;
  if (asked.file) state.files.set(key, asked.file);
  history.pushState(key, "", asked.file ? "#file" : `#row=${asked.row}`);
}

// Show the current entry: after Back, Forward or a reload.
function revisit() {
  if (byId("zoom").open) byId("zoom").close();
  const asked = visited();
  if (asked) search(asked);
  else reset();
}

async function search(asked) {
  const turn = ++state.turn;
  visit(asked);
  document.body.classList.add("busy");
  try {
    const { about } = state;
    if (asked.file && !about.network) throw new Error("There is no network to embed an image. Start `likewise search` with --model RUN, or search with an image of the index.");
    if (asked.file && asked.file.size > about.upload) {
      throw new Error(`That file has ${number(Math.round(asked.file.size / 1e6))} MB, and an image may have ${Math.floor(about.upload / 1e6)}. Shrink it first.`);
    }
    const query = { k: byId("k").value, ...(state.terms.length ? { filter: filterText() } : {}) };
    const told = asked.file ? await ask("/api/search", { ...query, preview: true }, { method: "POST", body: asked.file })
      : await ask("/api/search", { ...query, row: asked.row }, { method: "POST" });
    if (turn !== state.turn) return;
    [state.asked, state.told] = [asked, told];
    if (told.promise !== about.promise) learnLevels().catch((error) => say(error.message, true)); // the run was calibrated again
    Object.assign(about, { promise: told.promise, hint: told.hint });
    say("");
    showQuery(told.query);
    window.scrollTo({ top: 0 });
    showDecision(told);
    showVotes(votesOf(told), told.found.length);
    showFound(told.found, told.query);
    showMeaning(told.found.length);
    remember(told.query);
  } catch (error) {
    if (turn === state.turn) fail(asked, error.message);
  } finally {
    if (turn === state.turn) document.body.classList.remove("busy");
  }
}

// The results of another query must not stand beside the error of this one.
function fail(asked, message) {
  const name = asked.file ? asked.file.name || "pasted image" : `row ${asked.row}`;
  const repeated = state.asked && (asked.file ? state.asked.file === asked.file : state.asked.row === asked.row);
  if (!repeated) {
    state.asked = null;
    for (const id of ["decision", "votes", "meaning", "add", "remove"]) byId(id).hidden = true;
    byId("query").replaceChildren(make("div", "failed", make("b", "", ...broken(name)), " could not be searched"));
    byId("query").hidden = byId("actions").hidden = false;
    byId("drop").hidden = true;
    byId("found").classList.remove("strangers");
    byId("found").replaceChildren(make("p", "empty", make("b", "", "No results")));
  }
  say(`${name}: ${message}`, true);
}

const again = () => { if (state.asked) search(state.asked); };

function take(files) {
  const file = [...files].find((one) => one.type.startsWith("image/")) || files[0];
  if (file) search({ file });
}

function unsure() {
  byId("remove").classList.remove("sure");
  byId("remove").textContent = "Remove from index";
}

async function remove() {
  const button = byId("remove");
  if (!button.classList.contains("sure")) {
    button.classList.add("sure");
    button.textContent = "Really remove it?";
    return;
  }
  const { row } = state.asked, name = byId("query").querySelector("figcaption span").textContent;
  await ask(`/api/rows/${row}`, null, { method: "DELETE" });
  state.history = state.history.filter((one) => one.asked.row !== row);
  await learn();
  history.replaceState(null, "", location.pathname);
  reset();
  say(`${name} is removed.`);
}

async function add(name) {
  const told = await ask("/api/rows", { class: name }, { method: "POST", body: state.asked.file });
  await learn();
  await search({ row: told.row });
  say(`Added to ${name}, as row ${told.row}.`);
}

function openAdding() {
  const choice = (vote) => Object.assign(make("button", "", ...broken(vote.class)), {
    type: "button", onclick: () => { byId("name").value = vote.class; byId("adding").close("ok"); } });
  byId("likely").replaceChildren(...state.told.votes.slice(0, 5).map(choice));
  byId("name").value = byId("adding").returnValue = "";
  byId("adding").showModal();
}

function reset() {
  state.asked = null;
  state.turn += 1;
  document.body.classList.remove("busy");
  for (const id of ["query", "actions", "decision", "votes", "meaning"]) byId(id).hidden = true;
  byId("drop").hidden = !state.about.network;
  byId("file").value = "";
  const words = state.about.network ? "Choose an image, or start with one of these random images."
    : "There is no network to embed an image, so search with one of the images here. These are random ones.";
  const none = make("p", "empty", make("b", "", "The index is empty"), "Add images with `likewise search INDEX --add FOLDER`.");
  byId("found").classList.remove("strangers");
  const hint = state.about.hint ? [make("p", "begin notice", state.about.hint)] : [];
  byId("found").replaceChildren(...(state.about.some.length ? [...hint, make("p", "begin", words), ...state.about.some.map((one, i, all) => card(one, undefined, all))] : [none]));
}

async function learn() {
  const about = state.about = await ask("/api/about");
  document.title = `${about.title} · search`;
  byId("title").textContent = about.title;
  const many = (count, one, more) => `${number(count)} ${count === 1 ? one : more}`;
  const how = about.kind === "exact" ? [] : [about.kind + (about.recall === null ? "" : `, finds ${percent(about.recall)} % of the nearest`)];
  byId("facts").textContent = [about.pictures ? many(about.rows, "image", "images") : many(about.rows, "row", "rows"),
    about.labels ? many(about.labels.length, "label", "labels") : many(about.classes.length, "class", "classes"), ...(about.scope === about.title ? [] : [about.scope]), ...how].join(" · ");
  offer("classes", about.classes);
  offer("labels", labels());
  byId("within").placeholder = about.labels ? "Filter by label…" : "Only in class…";
  state.terms = state.terms.filter((term) => labels().includes(term.label));
  showTerms();
  learnLevels().catch((error) => say(error.message, true));
}

// The levels take seconds for a million rows: results without the words of `reading` get them when they come.
async function learnLevels() {
  const { about } = state, levels = await ask("/api/levels");
  if (about !== state.about) return;
  state.levels = levels;
  if (!state.asked) return;
  showFound(state.told.found, state.told.query);
  showMeaning(state.told.found.length);
}

const failing = (work) => () => work().catch((error) => say(error.message, true));

function listen() {
  byId("file").onchange = (event) => take(event.target.files);
  byId("drop").onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); byId("file").click(); } };
  byId("other").onclick = () => { byId("file").value = ""; if (state.about.network) byId("file").click(); else { history.pushState(null, "", location.pathname); reset(); } };
  byId("zoom-close").onclick = () => byId("zoom").close();
  byId("zoom").onclick = (event) => { if (event.target === byId("zoom")) byId("zoom").close(); };
  byId("k").oninput = () => { byId("many").textContent = byId("k").value; };
  byId("k").onchange = again;
  byId("within").onchange = takeTerm;
  byId("options").onsubmit = (event) => event.preventDefault();
  byId("remove").onclick = failing(remove);
  byId("add").onclick = openAdding;
  byId("adding").onclose = failing(async () => { if (byId("adding").returnValue === "ok") await add(byId("name").value); });
  addEventListener("popstate", revisit);
  document.addEventListener("paste", (event) => { if (event.clipboardData.files.length) take(event.clipboardData.files); });
  document.addEventListener("dragover", (event) => { event.preventDefault(); byId("veil").hidden = false; });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) byId("veil").hidden = true; });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    byId("veil").hidden = true;
    if (event.dataTransfer.files.length) take(event.dataTransfer.files);
  });
}

async function start() {
  await learn();
  listen();
  history.scrollRestoration = "manual";
  revisit();
}

start().catch((error) => say(error.message, true));
