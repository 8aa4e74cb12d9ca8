// Regions of the map that are magnified: dense regions of one class, and regions with mixed classes.

const WINDOW = 0.085, LENS_PIC = 0.23;

/** Chebyshev distance of two points. */
const gap = (places, i, j) => Math.max(Math.abs(places[2 * i] - places[2 * j]), Math.abs(places[2 * i + 1] - places[2 * j + 1]));

/** Points with an image inside a square window, and the number of points of each class. */
function insideOf(centre, half, places, withImage, label) {
  const members = withImage.filter(i => gap(places, i, centre) < half);
  const votes = new Map();
  for (const i of members) votes.set(label[i], (votes.get(label[i]) ?? 0) + 1);
  const ranked = [...votes].sort((a, b) => b[1] - a[1]);
  return { centre, half, members, ranked, pure: ranked[0][1], mixed: members.length - ranked[0][1] };
}

/** Up to `many` separate windows, in turn the one with the most mixed classes and the one densest in a single class. */
function chooseRegions(places, withImage, label, many) {
  const [left, right, low, high] = boundsOf(places), half = WINDOW * Math.max(right - left, high - low) / 2;
  const step = Math.max(1, Math.floor(withImage.length / 400));
  const windows = withImage.filter((_, i) => i % step === 0).map(i => insideOf(i, half, places, withImage, label));
  const candidates = windows.filter(one => one.members.length >= 4), found = [];
  const apart = (a, b) => gap(places, a.centre, b.centre) > 2.2 * half;
  while (found.length < many) {
    const worth = found.length % 2 ? one => one.pure - one.mixed : one => one.mixed;
    const free = candidates.filter(one => found.every(other => apart(one, other)));
    if (!free.length) break;
    found.push(free.reduce((best, one) => worth(one) > worth(best) ? one : best));
  }
  return found.map(region => fitted(region, places));
}

/** Shrink a window to most of its members: centre, half side, members inside. */
function fitted({ members, half, ranked }, places) {
  const middle = axis => members.map(i => places[2 * i + axis]).sort((a, b) => a - b)[members.length >> 1];
  const [x, y] = [middle(0), middle(1)], away = i => Math.max(Math.abs(places[2 * i] - x), Math.abs(places[2 * i + 1] - y));
  const most = members.map(away).sort((a, b) => a - b)[Math.floor(0.85 * (members.length - 1))];
  const side = clamp(1.15 * most, 0.15 * half, half);
  return { x, y, half: side, members: members.filter(i => away(i) <= side), ranked, many: members.length };
}

/** Choose members of a region whose images do not overlap, least crowded first; return them and the rest. */
function spread(region, places) {
  const edge = LENS_PIC / 2 + 0.02, inLens = offset => clamp(offset / (2 * region.half) + 0.5, edge, 1 - edge);
  const all = region.members.map(i => ({ i, x: inLens(places[2 * i] - region.x), y: inLens(places[2 * i + 1] - region.y) }));
  const covers = (a, b) => a !== b && Math.max(Math.abs(a.x - b.x), Math.abs(a.y - b.y)) <= LENS_PIC + 0.02;
  const crowd = new Map(all.map(one => [one, all.filter(other => covers(one, other)).length]));
  const shown = [];
  for (const one of [...all].sort((a, b) => crowd.get(a) - crowd.get(b))) {
    if (!shown.some(other => covers(one, other))) shown.push(one);
  }
  return { shown, rest: all.filter(one => !shown.includes(one)) };
}

/** Images at their points in the window, as many as fit without overlap. */
function thumbnails(view, pool, withImage, side, colour) {
  const shown = [];
  for (const i of withImage) {
    const [x, y] = view.toScreen(i), inside = Math.min(x, y, view.wide - x, view.high - y) > side / 2;
    if (inside && shown.every(one => Math.max(Math.abs(one.x - x), Math.abs(one.y - y)) > side + 3)) shown.push({ i, x, y });
  }
  return shown.map(({ i, x, y }) => {
    const made = pic(imageSlot(pool, i), className(pool, i));
    made.style.cssText += `left: ${x - side / 2}px; top: ${y - side / 2}px; width: ${side}px; --of: ${colour(i)}`;
    return made;
  });
}

/** The two labels that are more frequent among these samples than in the whole pool, with their number of samples. */
function typicalLabels(pool, members) {
  const { sets, names } = facts.pools[pool].labels, { label } = labels.get(pool);
  const tally = classes => {
    const times = new Float64Array(names.length);
    for (const one of classes) for (const name of sets[one] ?? []) times[name] += 1;
    return times;
  };
  const here = tally(members.map(i => label[i])), whole = tally(label);
  const gain = name => here[name] / members.length - whole[name] / label.length;
  const order = [...here.keys()].filter(name => here[name]).sort((a, b) => gain(b) - gain(a));
  return order.slice(0, 2).map(name => [name, here[name]]);
}

/** A magnified region. */
function inset(region, number, places, pool, colour, onclick) {
  const names = facts.pools[pool].classes, { shown, rest } = spread(region, places);
  const put = (element, { i, x, y }, side) => {
    element.style.left = `${100 * (x - side / 2)}%`;
    element.style.top = `${100 * (1 - y - side / 2)}%`;
    element.style.setProperty("--of", colour(i));
    return element;
  };
  const images = shown.map(one => {
    const made = put(pic(imageSlot(pool, one.i), className(pool, one.i)), one, LENS_PIC);
    made.style.width = `${100 * LENS_PIC}%`;
    return made;
  });
  const { labels: several } = facts.pools[pool];
  const shares = (several ? typicalLabels(pool, region.members) : region.ranked.slice(0, 2)).flatMap(([one, votes], i) =>
    [i ? ", " : "", h("bdi", {}, (several ? several.names : names)[one] ?? "no class"),
      ` ${Math.round(100 * votes / (several ? region.members.length : region.many))} %`]);
  const left = several ? 0 : region.ranked.length - 2;
  return h("button", { type: "button", class: "inset", onclick, title: "Zoom in" },
    h("span", { class: "lens" }, rest.map(one => put(h("i"), one, 0.02)), images),
    h("small", {}, h("b", {}, `${number} `), shares, left > 0 ? ` and ${left} more class${left > 1 ? "es" : ""}` : ""));
}
