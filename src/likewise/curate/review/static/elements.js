// Elements that all views use: images, names, small images in a row, the large image, text to copy.
import { ask, byId, encoded, say } from "/static/server.js";

export const state = {
  about: null, view: "one", kind: "sample", tiles: [], at: 0, aside: null, details: new Map(), history: [], busy: 0,
  next: null, beyond: false, fresh: true, limits: {}, chosen: new Set(), anchor: null, review: null, back: "",
  plan: null, order: "", group: null, kept: new Set(), open: new Set(), skipped: new Set(),
};

export function make(kind, className, ...children) {
  const one = document.createElement(kind);
  one.className = className || "";
  one.append(...children.filter((child) => child !== null && child !== undefined));
  return one;
}

export const set = (element, values) => Object.assign(element, values);
export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

// A name with line breaks allowed after underscores, because many names have no spaces.
export const broken = (name) => name.split(/(?<=[_/])/).flatMap((part, i) => i ? [make("wbr"), part] : [part]);
export const bold = (name) => make("b", "", ...broken(name));
export const quoted = (name) => `\u2018${name}\u2019`;
export const percent = (share) => share > 0.995 && share < 1 ? "> 99 %" : share > 0 && share < 0.005 ? "< 1 %" : `${Math.round(share * 100)} %`;

export const source = (row, big) => `/picture/${row}?start=${state.about.start}${big ? "&large=true" : ""}`;

export function picture(row, name, label, big) {
  if (!state.about.pictures) return make("span", "id", name || `row ${row}`);
  const image = set(make("img"), { alt: label ? `${label}, ${name}` : name, src: source(row, big), decoding: "async", draggable: false });
  image.onerror = async () => {
    const words = make("span", "broken", name);
    image.replaceWith(words);
    if (big) words.textContent = await fetch(image.src).then((answer) => answer.text()).catch(() => name);
  };
  return image;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // pages that are not served from this machine have no clipboard
    const field = set(make("textarea"), { value: text });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  say(`Copied: ${text}`);
}

export function copier(text, words) {
  const one = make("button", "copy", words);
  return set(one, { type: "button", title: `Copy ${text}`, onclick: () => copy(text) });
}

// Samples are {row, label, name}. A click on a small image shows it large; from there the others can be seen too.
export function thumbs(found, className, captions) {
  const frame = (one, i) => {
    const button = set(make("button", "thumb", picture(one.row, one.name, one.label, false)), {
      type: "button", title: `${one.label}: show ${one.name} large`, onclick: () => zoom(found, i) });
    return make("figure", one.kind || "", button, captions ? make("figcaption", "", ...broken(captions[i])) : null);
  };
  return make("div", className, ...found.map(frame));
}

export function zoom(found, at) {
  const box = byId("zoom"), one = found[at];
  const step = (by) => zoom(found, (at + by + found.length) % found.length);
  const act = (words, label, work) => set(make("button", "", words), { type: "button", title: label, ariaLabel: label, onclick: work });
  const many = found.length > 1;
  const image = set(make("button", "whole", picture(one.row, one.name, one.label, true)), { type: "button", title: "Close (Esc)", onclick: () => box.close() });
  box.replaceChildren(image, make("div", "under", many ? act("←", "Previous image", () => step(-1)) : null,
    make("p", "", bold(one.label), ` ${one.name}`), many ? act("→", "Next image", () => step(1)) : null,
    one.here ? null : act("Review this label", "Decide about this image", () => { box.close(); state.review(one.row); }),
    act("Close", "Close (Esc)", () => box.close())));
  box.onkeydown = (event) => {
    if (many && event.key === "ArrowLeft") step(-1);
    else if (many && event.key === "ArrowRight") step(1);
    else if (event.key.toLowerCase() === "z") box.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  if (!box.open) box.showModal();
  image.focus();
}

let all = { names: [] };

// The classes of a split, or of the whole data with those that reviewers added.
export function known(split) {
  if (split) return state.about.classes[split] || [];
  const { classes, added } = state.about;
  if (all.classes !== classes || all.count !== added.length) all = { classes, count: added.length, names: [...new Set([...Object.values(classes).flat(), ...added])] };
  return all.names;
}

// A suggestion that is probably not right is never selected or framed beforehand.
export const isWeak = (tile) => typeof tile.probability === "number" && tile.probability < 0.5;

export const reviewer = () => localStorage.getItem("reviewer") || state.about.user || "";

export async function details(item) {
  if (!state.details.has(item)) {
    const found = ask(`/api/item/${encoded(item)}`, { reviewer: reviewer() });
    state.details.set(item, found);
    found.catch(() => state.details.delete(item));
  }
  return state.details.get(item);
}
