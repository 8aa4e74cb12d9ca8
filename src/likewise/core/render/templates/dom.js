// HTML elements, small controls, and the formatting of numbers.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined));
  return element;
}

/** Create an HTML element. Strings among its children become text, never HTML. */
const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

/** Split a name into children with possible line breaks after _ and /. */
const breakable = name => name.split(/(?<=[_/])/).flatMap((piece, i) => i ? [h("wbr"), piece] : [piece]);

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

const isNumber = value => typeof value === "number" && Number.isFinite(value);

/** A number with three significant digits; a dash if it is missing. */
function digits(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size > 0 && size < 0.001) return value.toExponential(1).replace(".0e", "e");
  return String(Number(value.toPrecision(3)));
}

const percent = share => isNumber(share) ? `${(100 * share).toFixed(1)} %` : "–";

const count = value => value.toLocaleString("en");

/** Buttons of which one is pressed; null for fewer than two names. */
function choice(label, names, chosen, onChoose) {
  if (names.length < 2) return null;
  const mark = number => buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === number));
  const press = number => { mark(number); onChoose(number); };
  const buttons = names.map((name, i) => h("button", { type: "button", onclick: () => press(i) }, name));
  mark(chosen);
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/** Buttons if they fit, otherwise a drop-down list. */
function oneOf(label, names, chosen, onChoose) {
  if (names.length < 2) return null;
  if (names.join("").length < 70) return choice(label, names, chosen, onChoose);
  const options = names.map((name, i) => h("option", { value: i, selected: i === chosen }, name));
  return h("label", { class: "field" }, label, h("select", { onchange: event => onChoose(Number(event.target.value)) }, options));
}

let lists = 0;

/** Largest number of names that a search box suggests: tens of thousands of elements delay the page by seconds. */
const SUGGESTED_NAMES = 1000;

/** A search box for names; `onFind` gets the index of the exact name or of the only match, otherwise -1. */
function searchBox(label, names, onFind) {
  const options = some => some.slice(0, SUGGESTED_NAMES).map(name => h("option", { value: name }));
  const list = h("datalist", { id: `names-${lists++}` }, options(names));
  const find = event => {
    const text = event.target.value.trim().toLowerCase();
    const fits = text ? names.flatMap((name, i) => name.toLowerCase().includes(text) ? [i] : []) : [];
    const whole = fits.find(i => names[i].toLowerCase() === text);
    if (names.length > SUGGESTED_NAMES) list.replaceChildren(...options(text ? fits.map(i => names[i]) : names));
    onFind(whole ?? (fits.length === 1 ? fits[0] : -1));
  };
  const box = h("input", { type: "search", list: list.id, placeholder: label, "aria-label": label, oninput: find });
  return [box, list];
}

/** The first `step` items of a list, and a button that shows more. */
function unfolding(list, make, holder, step) {
  let shown = 0;
  const button = h("button", { type: "button", class: "plain more", onclick: () => grow() });
  const grow = () => {
    holder.append(...list.slice(shown, shown + step).map(make));
    shown = Math.min(list.length, shown + step);
    button.hidden = shown >= list.length;
    button.textContent = `Show more (${count(list.length - shown)} left)`;
  };
  grow();
  return [holder, button];
}

const tip = h("div", { id: "tip", role: "status", hidden: true });

/** Show a tooltip beside the pointer, inside the window. */
function showTip(event, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  if (!tip.isConnected) document.body.append(tip);
  const { width, height } = tip.getBoundingClientRect();
  const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 16 : event.clientX + 16;
  tip.style.left = `${clamp(left, 4, innerWidth - width - 4)}px`;
  tip.style.top = `${clamp(event.clientY + 14, 4, innerHeight - height - 4)}px`;
}

const hideTip = () => { tip.hidden = true; };
