// The plan of a review: the order of what comes next, what it is expected to bring, and when to stop.
import { ask, byId, say, settled } from "/static/server.js";
import { copier, make, plural, reviewer, set, state } from "/static/elements.js";
import { curves, interval, points, time } from "/static/curve.js";

const EVERY = 10; // decided labels between two requests
const ORDERS = { suspicion: "by suspicion", gain: "by expected gain", votes: "votes that differ first" };
let underway = null, again = false, since = 0, made = 0; // made: decisions that the plan does not know
let hooks = { arrived: () => undefined, end: () => undefined };

export const hook = (given) => { hooks = given; };
const least = () => sessionStorage.getItem("least") ?? state.about.stop_below ?? ""; // points; empty: no rule to stop
const query = () => ({ ...state.limits, reviewer: reviewer(), order: state.order, ...(least() === "" ? {} : { least: least() }) });

// Requests run one after another; the answer to a question that changed meanwhile (order, reviewer) is not used.
export function refresh() {
  again = true;
  underway ||= work().finally(() => { underway = null; });
  return underway;
}

async function work() {
  while (again) {
    again = false;
    await settled();
    const asked = JSON.stringify(query()), sent = made, found = await ask("/api/plan", JSON.parse(asked));
    made -= sent;
    if (asked !== JSON.stringify(query())) again = true;
    else arrive(found);
  }
}

function arrive(found) {
  state.plan = found;
  byId("order").replaceChildren(...found.orders.map((value) => set(make("option", "", ORDERS[value] || value), { value })));
  byId("order").value = found.order;
  byId("order-label").hidden = found.orders.length < 2;
  line();
  hooks.arrived();
}

// The plan is requested again when enough labels were decided; if the server does not respond, the next time.
export function decided(count, more = count) {
  since += count;
  made += more;
  if (since < EVERY) return line();
  since = 0;
  refresh().catch(() => undefined);
}

function pace({ seconds, measured }) {
  const each = `${seconds < 0.05 ? "less than 0.1" : seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s per label`;
  return measured ? `at your pace (${each})` : `at an assumed pace of ${each}`;
}

export function line() {
  const { plan } = state, bar = byId("ahead");
  bar.hidden = !plan || state.kind === "pair" || state.view === "end" || !plan.left.items;
  if (bar.hidden) return;
  const { next, left, stop } = plan, known = next.gain !== null && next.gain !== undefined;
  const first = known ? `Next ${plural(next.decisions, "decision")}: ${next.gain >= 0.00005 ? "about " : ""}${points(next.gain)} points of MAP@R` : `${plural(Math.max(0, left.items - made), "label")} left`;
  byId("plan").replaceChildren(first, " · ", `${time(left.minutes)}${known ? " left" : ""}`, make("span", "wide", ` ${pace(plan.pace)}`), make("kbd", "", "W"));
  byId("enough").hidden = stop !== true;
  if (stop === true) byId("enough").firstElementChild.textContent = `The next ${plural(next.decisions, "decision")} are expected to bring less than ${least()} points: you can stop here.`;
}

function sentences({ forecast, here, left, pace: own }) {
  const last = forecast.curve.at(-1), flat = forecast.flat_at, found = [];
  if (here && here["MAP@R"] && here.k) found.push(`You have reviewed ${plural(here.k, "label")}: about ${points(here["MAP@R"].gain)} points of MAP@R (${interval(here["MAP@R"])}).`);
  if (left.items && left.gain !== null) found.push(`The ${plural(left.items, "label")} that are left: about ${points(left.gain)} points, ${time(left.minutes)} ${pace(own)}.`);
  if (!left.items) found.push("Every flagged label is reviewed.");
  if (flat && flat < last.k) found.push(`The curve flattens after ${plural(flat, "label")} (${time(flat * own.seconds / 60)}): they bring 90 % of the gain in MAP@R.`);
  return found;
}

// The forecast in words and curves; without one, how to get it.
export function forecastParts(plan) {
  const { forecast } = plan;
  if (!forecast) {
    const command = "likewise audit … --forecast";
    return [make("p", "", "This audit has no forecast of what a review brings. Audit again with the same arguments and "), make("p", "command", make("code", "", command), copier("--forecast", "Copy --forecast"))];
  }
  if (forecast.reason || !forecast.curve.length) return [make("p", "", `What the review brings is unknown${forecast.reason ? `, because ${forecast.reason}` : ""}.`)];
  return [curves(plan), ...sentences(plan).map((words) => make("p", "", words)),
    make("p", "quiet", `Expected change of a linear head on these features when the first labels of the queue are reviewed; the band is the 90 % interval. Scored on: ${forecast.scored || "the test split"}.`)];
}

export function panel() {
  const { plan } = state, box = byId("forecast");
  if (!plan) return say("The plan of the review is not loaded yet.");
  byId("limit").value = least();
  byId("rule").hidden = !plan.forecast || Boolean(plan.forecast.reason);
  byId("curves").replaceChildren(...forecastParts(plan));
  if (!box.open) box.showModal();
}

export function listen() {
  byId("plan").onclick = panel;
  byId("enough").lastElementChild.onclick = () => hooks.end();
  byId("limit").onchange = () => {
    sessionStorage.setItem("least", Number(byId("limit").value) > 0 ? byId("limit").value : "");
    refresh().catch((error) => say(error.message, true));
  };
}

// Tiles that come after the one on screen, in the order of the plan; the others keep their places. By suspicion, one by one, the
// order is that of the audit.
export function sort(tiles, at) {
  if (state.order === "suspicion") return;
  const place = new Map((state.plan ? state.plan.groups : []).flatMap((group) => group.items).map((item, i) => [item, i]));
  const isOpen = (tile, i) => i > at && place.has(tile.item) && !tile.choice;
  const waiting = tiles.filter(isOpen).sort((a, b) => place.get(a.item) - place.get(b.item));
  tiles.forEach((tile, i) => { if (isOpen(tile, i)) tiles[i] = waiting.shift(); });
}
