// Charts of a review as SVG: the forecast gain against the labels reviewed, and forecast against realised gain.
import { make, plural } from "/static/elements.js";

export function points(share, digits = 2) {
  const value = Math.abs(100 * share), text = value.toFixed(digits);
  return `${Number(text) === 0 ? "" : share > 0 ? "+" : "−"}${text}`;
}

export const interval = (one) => `${points(one.low)} to ${points(one.high)}`;

// Time in words: minutes, or hours if there are many.
export function time(minutes) {
  if (minutes < 1) return "less than 1 min";
  return minutes < 120 ? `about ${Math.round(minutes)} min` : `about ${(minutes / 60).toFixed(1)} h`;
}

const SVG = document.querySelector("svg").namespaceURI; // that of the page's icons

function draw(kind, values, ...children) {
  const one = document.createElementNS(SVG, kind);
  Object.entries(values).forEach(([name, value]) => one.setAttribute(name, value));
  one.append(...children.filter((child) => child !== null));
  return one;
}

const text = (x, y, words, anchor = "middle", kind = "") => draw("text", { x, y, "text-anchor": anchor, class: kind }, words);
const line = (x1, y1, x2, y2, kind) => draw("line", { x1, y1, x2, y2, class: kind });

// Round numbers from low to high, at most `most` steps.
function ticks(low, high, most) {
  const span = high - low || 1, rough = span / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => span / n <= most + 1e-9);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(i * step + 0); // + 0: never minus zero
  return found;
}

const decimals = (marks) => {
  const step = marks.length > 1 ? marks[1] - marks[0] : 1;
  return Math.max(0, Math.min(3, -Math.floor(Math.log10(step) + 1e-9)));
};

const signed = (value, digits) => Number(value.toFixed(digits)) === 0 ? "0" : `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(digits)}`;
const WIDTH = 420, HEIGHT = 230, LEFT = 46, RIGHT = 26, TOP = 34, BOTTOM = 40;

// One metric: the expected gain, its interval, where it flattens, and where the reviewer is.
export function forecastChart(metric, { forecast, here, pace }, kind) {
  const known = forecast.curve.filter((one) => one[metric]);
  const curve = known.length && known[0].k > 0 ? [{ k: 0, [metric]: { gain: 0, low: 0, high: 0 } }, ...known] : known;
  const last = curve.at(-1), most = Math.max(last.k, 1), own = here && here[metric];
  const all = forecast.curve.flatMap((one) => ["MAP@R", "R@1"].flatMap((name) => one[name] ? [one[name].low, one[name].high] : []));
  const marks = ticks(100 * Math.min(0, ...all), 100 * Math.max(0.001, ...all), 5), digits = decimals(marks);
  const low = Math.min(marks[0], 100 * Math.min(0, ...all)), high = Math.max(marks.at(-1), 100 * Math.max(0.001, ...all));
  const x = (k) => LEFT + (WIDTH - LEFT - RIGHT) * k / most, y = (gain) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (100 * gain - low) / (high - low));
  const at = (part) => curve.map((one) => `${x(one.k).toFixed(1)},${y(one[metric][part]).toFixed(1)}`);
  const minutes = pace ? ticks(0, most * pace.seconds / 60, 4) : [];
  const wide = decimals(minutes), flat = forecast.flat_at;
  const words = `${metric}: ${points(last[metric].gain)} points after ${plural(last.k, "label")}, 90 % interval ${interval(last[metric])}`
    + (own ? `; now ${points(own.gain)} points after ${plural(here.k, "label")}` : "");
  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words, class: `curve ${kind}` },
    ...marks.flatMap((mark) => [line(LEFT, y(mark / 100), WIDTH - RIGHT, y(mark / 100), mark ? "rule" : "zero"), text(LEFT - 6, y(mark / 100) + 4, signed(mark, digits), "end")]),
    ...ticks(0, most, 5).filter(Number.isInteger).map((k) => text(x(k), HEIGHT - BOTTOM + 16, k.toLocaleString("en"))),
    ...minutes.slice(1).flatMap((m) => [line(x(m * 60 / pace.seconds), TOP - 4, x(m * 60 / pace.seconds), TOP, "rule"), text(x(m * 60 / pace.seconds), TOP - 8, `${m.toFixed(wide)} min`)]),
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "labels reviewed"),
    draw("polygon", { points: [...at("high"), ...at("low").reverse()].join(" "), class: "band" }),
    flat && flat < most ? line(x(flat), TOP, x(flat), HEIGHT - BOTTOM, "flat") : null,
    flat && flat < most ? text(x(flat) + 5, HEIGHT - BOTTOM - 6, "flattens", "start") : null,
    draw("polyline", { points: at("gain").join(" "), class: "gain" }),
    own ? line(x(here.k), TOP, x(here.k), HEIGHT - BOTTOM, "now") : null,
    own ? draw("circle", { cx: x(here.k), cy: y(own.gain), r: 6, class: "now" }) : null,
    own ? text(x(here.k) + (here.k > 0.7 * most ? -9 : 9), TOP + 14, "you are here", here.k > 0.7 * most ? "end" : "start", "now") : null);
  return make("figure", "", make("figcaption", "", make("b", "", metric), ", change in points"), svg);
}

export function curves(plan) {
  const named = ["MAP@R", "R@1"].filter((name) => plan.forecast.curve.some((one) => one[name]));
  return make("div", "curves", ...named.map((name, i) => forecastChart(name, plan, i ? "second" : "first")));
}

// Forecast and realised gain of every metric on one axis.
export function proofChart(rows) {
  const all = rows.flatMap((one) => [one.forecast.low, one.forecast.high, one.realised.gain, one.realised.low ?? one.realised.gain, one.realised.high ?? one.realised.gain]);
  const marks = ticks(100 * Math.min(0, ...all), 100 * Math.max(0.001, ...all), 6), digits = decimals(marks), width = 640, left = 150;
  const low = Math.min(marks[0], 100 * Math.min(0, ...all)), high = Math.max(marks.at(-1), 100 * Math.max(0.001, ...all));
  const x = (gain) => left + (width - left - 24) * (100 * gain - low) / (high - low), bottom = 58 * rows.length + 14;
  const span = (one, y, kind, words) => [text(left - 12, y + 4, words, "end"),
    one.low === null || one.low === undefined ? null : line(x(one.low), y, x(one.high), y, `span ${kind}`), draw("circle", { cx: x(one.gain), cy: y, r: 6, class: kind })];
  const words = rows.map((one) => `${one.metric}: forecast ${points(one.forecast.gain)} points, realised ${points(one.realised.gain)}`).join("; ");
  return draw("svg", { viewBox: `0 0 ${width} ${bottom + 40}`, role: "img", "aria-label": words, class: "proof" },
    ...marks.flatMap((mark) => [line(x(mark / 100), 6, x(mark / 100), bottom, mark ? "rule" : "zero"), text(x(mark / 100), bottom + 16, signed(mark, digits))]),
    text((left + width) / 2, bottom + 34, "change in points"),
    ...rows.flatMap((one, i) => [text(4, 58 * i + 37, one.metric, "start", "name"), ...span(one.forecast, 58 * i + 22, "forecast", "forecast"), ...span(one.realised, 58 * i + 46, "realised", "realised")]));
}
