// Images of samples, taken from the sprite sheets at the end of the page.

let sheets = { size: [] }, facts = null, more = null;

const imageSlot = (pool, place) => more.slots[pool][place];

const hasImage = slot => slot !== undefined && slot !== null && slot < sheets.size.length;

/** Show the image in a slot of the sheets as the background of an element: its central square, or the whole image. */
function showSlot(element, slot, whole) {
  const { side, across, rows, size } = sheets, cell = slot % (across * across);
  const [width, height] = size[slot], square = Math.min(width, height);
  const [w, h] = whole ? [width, height] : [square, square];
  const x = cell % across * side + (width - w) / 2, y = Math.floor(cell / across) * side + (height - h) / 2;
  const W = across * side, H = rows * side;
  element.classList.add(`sheet-${Math.floor(slot / (across * across))}`);
  element.style.backgroundSize = `${W / w * 100}% ${H / h * 100}%`;
  element.style.backgroundPosition = `${x / Math.max(W - w, 1) * 100}% ${y / Math.max(H - h, 1) * 100}%`;
  if (whole) element.style.aspectRatio = `${w} / ${h}`;
  return element;
}

/** The image in a slot, or a name if there is none. */
function pic(slot, name, whole = false) {
  if (!hasImage(slot)) return h("span", { class: "pic name" }, h("span", {}, breakable(name)));
  return showSlot(h("span", { class: "pic", role: "img", "aria-label": name }), slot, whole);
}

const labels = new Map(), captions = new Map();

/** Wait for the labels and captions of a pool. */
async function readPool(pool) {
  const [label, row, caption] = await Promise.all([when(`label-${pool}`), when(`row-${pool}`), when(`caption-${pool}`)]);
  const kind = indexKind(facts.pools[pool].classes.length);
  if (label) labels.set(pool, { label: new kind(label), row: row && new Int32Array(row) });
  captions.set(pool, caption ?? []);
}

const classOf = (pool, place) => labels.get(pool)?.label[place] ?? -1;

const className = (pool, place) => facts.pools[pool].classes[classOf(pool, place)] ?? "no class";

const captionOf = (pool, place) => captions.get(pool)?.[place] ?? `row ${labels.get(pool)?.row?.[place] ?? place}`;

/** Similarity or distance of a neighbour as text; "" if it is unknown. */
function nearness(run, similarity) {
  if (!isNumber(similarity)) return "";
  return facts.runs[run].similarity === "euclidean" ? `distance ${digits(-similarity)}` : similarity.toFixed(2);
}

/** Numbers of the labels of a sample; null if samples have one label each. */
const labelsOf = (pool, place) => facts.pools[pool].labels?.sets[classOf(pool, place)] ?? null;

/** Relevance of two samples with several labels: labels in common, divided by all of their labels. */
function sharedLabels(pool, a, b) {
  const ours = labelsOf(pool, a), theirs = labelsOf(pool, b), common = ours.filter(one => theirs.includes(one)).length;
  return common / (ours.length + theirs.length - common);
}

/** The labels of a sample as chips, those that another sample (`beside`) has too first and highlighted. */
function chips(pool, place, beside = -1) {
  const { names } = facts.pools[pool].labels, ours = beside < 0 ? [] : labelsOf(pool, beside);
  const own = [...labelsOf(pool, place)].sort((a, b) => Number(ours.includes(b)) - Number(ours.includes(a)));
  return h("span", { class: "labels-of" }, own.map(one => {
    const shared = ours.includes(one);
    return h("span", { class: shared ? "chip shared" : "chip", title: shared ? "shared with the query" : null }, names[one]);
  }));
}

/** Relevance as a bar from 0 to 1. */
function relevanceBar(value) {
  const bar = h("span", { class: "share" }, h("i")), text = value.toFixed(2);
  bar.style.setProperty("--share", clamp(value, 0, 1));
  return h("span", { class: "relevance", role: "img", title: `relevance ${text}`, "aria-label": `relevance ${text}` }, bar, text);
}

/** The name of a sample in a heading or below an image: its class, or its labels as chips. */
function nameOf(pool, place, beside) {
  return labelsOf(pool, place) ? chips(pool, place, beside) : h("b", {}, breakable(className(pool, place)));
}

/**
 * A sample: image, class name or labels, and a line of text. `kind`: right, wrong or query; `relevance`: a bar in place of the
 * frame; `beside`: the sample whose labels are highlighted.
 */
function tile(pool, place, { kind = "", line = "", whole = false, onclick = null, bare = false, relevance, beside } = {}) {
  const name = className(pool, place), caption = captionOf(pool, place), graded = isNumber(relevance);
  const description = `${kind && !graded ? `${kind}: ` : ""}${name}, ${caption}`;
  const looks = { class: `tile ${graded ? "graded" : kind}`, title: `${name} · ${caption}` };
  return h(onclick ? "button" : "figure", onclick ? { ...looks, type: "button", onclick } : looks,
    hasImage(imageSlot(pool, place)) ? pic(imageSlot(pool, place), description, whole) : pic(null, caption),
    graded ? relevanceBar(relevance) : null,
    bare ? null : h(onclick ? "span" : "figcaption", { class: "tile-text" }, nameOf(pool, place, beside), breakable(line)));
}
