// The map: choice of run, method and colours; the chosen class, the pinned sample, and the panel beside the map.

const INSETS = 6, CHIPS = 30, CLOSE = 2.5, THUMBNAIL = 46;

class MapSection {
  constructor(holder) {
    this.runs = facts.runs.map((_, i) => i).filter(i => facts.runs[i].map);
    Object.assign(this, { run: this.runs[0], by: 0, chosen: -1, pinned: -1, regions: [] });
    this.method = this.maps.length - 1;  // PCA is the first map and the least detailed
    this.sea = h("div", { class: "sea" });
    this.wait = h("div", { class: "wait" }, "Loading the map.");
    this.over = svg("svg", { "aria-hidden": "true" });
    this.images = h("div", { class: "images", "aria-hidden": "true" });
    this.beside = h("aside", { "aria-live": "polite" });
    this.chips = h("div", { class: "chips" });
    this.controls = h("div", { class: "bar" });
    this.view = new View(this.sea, {
      hover: (place, event) => this.hover(place, event), pick: place => this.pin(place), drawn: () => this.overlay(),
    });
    const tool = (sign, name, act) => h("button", { type: "button", title: name, "aria-label": name, onclick: act }, sign);
    const tools = h("div", { class: "tools" }, tool("+", "Zoom in", () => this.view.step(1.6)),
      tool("−", "Zoom out", () => this.view.step(1 / 1.6)), tool("⟲", "Show all", () => this.view.home()));
    this.sea.append(this.images, this.over, tools, this.wait);
    holder.replaceChildren(this.controls, h("div", { class: "atlas" }, h("div", {}, this.sea, this.chips), this.beside));
    document.addEventListener("theme", () => this.colour());
    this.drawControls();
    this.open();
  }

  get pool() { return facts.runs[this.run].pool; }

  get maps() { return facts.runs[this.run].map.names; }

  get label() { return labels.get(this.pool).label; }

  /** Ways to colour the points: a name, the names of the groups, and the group of a sample. */
  get colourings() {
    const { classes, groupings } = facts.pools[this.pool], { label } = this;
    const all = this.labelColourings;
    if (!all.length) all.push({ name: "class", names: classes, of: place => label[place] });
    for (const one of groupings) all.push({ name: one.name, names: one.names, of: place => one.of[label[place]] ?? -1 });
    const names = this.several ? ["nearest shares a label", "nearest shares no label"]
      : ["nearest is of the same class", "nearest is of another class"];
    const of = place => this.hasNeighbour(place, 0) ? Number(!this.isRight(place, 0)) : -1;
    if (this.near) all.push({ name: this.nearestName, names, of, fixed: ["--right", "--wrong"] });
    const { suspects } = facts.runs[this.run];
    if (suspects) {
      all.push({ name: "suspect label", names: ["label is plausible", "label looks wrong"],
        of: place => Number(place in suspects), fixed: ["--soft", "--wrong"] });
    }
    return all;
  }

  /** Labels of the pool if samples have several each: names, and the labels of every class. */
  get several() { return facts.pools[this.pool].labels ?? null; }

  get nearestName() { return this.several ? "nearest shares a label" : "right or wrong"; }

  /** Labels that the map can be coloured by, the most frequent first. */
  get labelOrder() {
    if (!this.several) return [];
    this.orders ??= new Map();
    if (!this.orders.has(this.pool)) {
      const { names, sets } = this.several, times = names.map(() => 0);
      for (const one of this.label) for (const label of sets[one] ?? []) times[label] += 1;
      const used = names.map((_, i) => i).filter(i => times[i]);
      this.orders.set(this.pool, used.sort((a, b) => times[b] - times[a]));
    }
    return this.orders.get(this.pool);
  }

  /** One colouring per label: samples with it, and the others. */
  get labelColourings() {
    const { label, several } = this;
    return this.labelOrder.map(one => ({ name: several.names[one], names: [several.names[one], "other samples"],
      of: place => Number(!(several.sets[label[place]] ?? []).includes(one)), fixed: ["--run-1", "--soft"] }));
  }

  get colouring() { return this.colourings[Math.min(this.by, this.colourings.length - 1)]; }

  drawControls() {
    const { classes, groupings } = facts.pools[this.pool];
    const first = this.several ? (labels.has(this.pool) ? this.labelOrder : []).map(i => this.several.names[i]) : ["class"];
    const names = [...first, ...groupings.map(one => one.name), ...(facts.runs[this.run].map.near.k ? [this.nearestName] : []),
      ...(facts.runs[this.run].suspects ? ["suspect label"] : [])];
    const options = names.map((name, i) => h("option", { value: i, selected: i === this.by }, name));
    this.select = h("select", { onchange: event => this.colourBy(Number(event.target.value)) }, options);
    this.controls.replaceChildren(...[
      oneOf("Run", this.runs.map(i => facts.runs[i].name), this.runs.indexOf(this.run), i => this.switchTo(this.runs[i])),
      choice("Map", this.maps, this.method, i => { this.method = i; this.open(); }),
      names.length > 1 ? h("label", { class: "field" }, "Colour", this.select) : null,
      ...(this.several ? searchBox("Search a label", this.several.names, found => this.findLabel(found))
        : searchBox("Search a class", classes, found => this.find(found)))].filter(Boolean));
  }

  switchTo(run) {
    const same = facts.runs[run].pool === this.pool, name = this.maps[this.method];
    this.run = run;
    this.method = Math.max(0, this.maps.indexOf(name));
    if (!same) Object.assign(this, { by: 0, chosen: -1, pinned: -1 });
    this.near = null;
    this.drawControls();
    this.open();
  }

  /** Wait for the coordinates and show the map; add the neighbours when their block has arrived. */
  async open() {
    const { run, method } = this, current = () => run === this.run && method === this.method;
    const [raw] = await Promise.all([when(`map-${run}-${this.maps[method]}`), readPool(this.pool)]);
    if (!current()) return;
    this.wait.remove();
    if (this.several) this.drawControls();
    this.view.place(new Float32Array(new Uint16Array(raw)).map(value => value / 65535));
    this.withImage = Object.keys(more.slots[this.pool]).map(Number).filter(place => hasImage(imageSlot(this.pool, place)));
    this.regions = chooseRegions(this.view.now, this.withImage, this.label, INSETS);
    this.colour();
    const { k, low, high, ranked } = facts.runs[run].map.near, { n } = facts.pools[this.pool], kind = indexKind(n);
    const [near, similarity, some] = await Promise.all([when(`near-${run}`), when(`similarity-${run}`),
      ranked ? when(`ranked-${run}`) : null]);
    if (!near || !current()) return;
    const known = new Float32Array(new Uint8Array(similarity)).map(value => low + value / 255 * (high - low));
    const line = some ? new Int32Array(n).fill(-1) : null;
    if (some) new kind(some).forEach((place, i) => { line[place] = i; });
    this.near = { k, place: new kind(near), similarity: known, line };
    this.colour();
  }

  /** Where the neighbours of a sample begin; negative for one whose neighbours were not ranked. */
  nearAt(place) {
    const { k, line } = this.near;
    return k * (line ? line[place] : place);
  }

  /** Neighbours of a sample: place, similarity, and whether they have its label. */
  neighbours(place) {
    if (!this.near) return [];
    const { k, place: near, similarity } = this.near, found = [];
    for (let j = 0; j < k; j++) {
      const at = this.nearAt(place) + j, right = this.isRight(place, j);
      if (this.hasNeighbour(place, j)) found.push({ other: near[at], similarity: similarity[at], right });
    }
    return found;
  }

  hasNeighbour(place, j) {
    const at = this.nearAt(place);
    return at >= 0 && this.near.place[at + j] < facts.pools[this.pool].n;
  }

  isRight(place, j) {
    const other = this.near.place[this.nearAt(place) + j];
    return this.several ? sharedLabels(this.pool, place, other) > 0 : this.label[other] === this.label[place];
  }

  colourOf(group, { names, fixed } = this.colouring) {
    if (group < 0 || group === undefined) return [0.6, 0, 0];
    if (fixed) return getComputedStyle(document.documentElement).getPropertyValue(fixed[group]).trim();
    return hue(group, names.length);
  }

  cssOf(place) { return `rgb(${asRgb(this.colourOf(this.colouring.of(place))).join(",")})`; }

  colour() {
    if (!labels.has(this.pool) || !this.view.now.length) return;
    const { colouring } = this, { names, of } = colouring, n = this.view.now.length / 2;
    const colour = new Uint8Array(3 * n), rank = new Uint8Array(n);
    const shades = names.map((_, i) => asRgb(this.colourOf(i, colouring))), none = rgb([0.6, 0, 0]);
    for (let i = 0; i < n; i++) {
      const group = of(i);
      const shade = shades[group] ?? none;
      colour[3 * i] = shade[0];
      colour[3 * i + 1] = shade[1];
      colour[3 * i + 2] = shade[2];
      rank[i] = this.chosen >= 0 && group === this.chosen ? 1 : 0;
    }
    this.view.look(colour, rank);
    this.drawChips();
    this.drawBeside();
  }

  choose(group) {
    this.chosen = group === this.chosen ? -1 : group;
    this.colour();
  }

  colourBy(number) {
    Object.assign(this, { by: number, chosen: -1 });
    this.select.value = number;
    this.colour();
  }

  /** Highlight the class that was searched; the map is coloured by class then. */
  find(found) {
    if (found >= 0 && this.by) this.colourBy(0);
    if (found === this.chosen || this.by) return;
    this.chosen = found;
    this.colour();
  }

  /** Colour the map by the label that was searched. */
  findLabel(found) {
    const place = this.labelOrder.indexOf(found);
    if (place >= 0 && place !== this.by) this.colourBy(place);
  }

  drawChips() {
    const { names, name } = this.colouring, few = names.length <= CHIPS;
    const shown = few ? names.map((_, i) => i) : this.chosen >= 0 ? [this.chosen] : [];
    const chip = i => {
      const pressed = String(i === this.chosen);
      const made = h("button", { type: "button", "aria-pressed": pressed, onclick: () => this.choose(i) }, h("i"), names[i]);
      made.style.setProperty("--of", `rgb(${asRgb(this.colourOf(i)).join(",")})`);
      return made;
    };
    const hint = `Coloured by ${name} (${count(names.length)} in all). Point at a sample, or search a class above.`;
    const text = few || shown.length ? "" : hint;
    this.chips.replaceChildren(...shown.map(chip), h("span", { class: "soft" }, text));
  }

  hover(place, event) {
    if (place < 0) return hideTip();
    const line = text => h("div", { class: "soft" }, text), group = this.colouring.names[this.colouring.of(place)];
    return showTip(event, this.wholeImage(place) ?? "", nameOf(this.pool, place),
      line(captionOf(this.pool, place)), this.by && !this.several && group !== undefined ? line(group) : "");
  }

  pin(place) {
    hideTip();
    this.pinned = place;
    this.drawBeside();
    this.view.draw();
  }

  drawBeside() {
    this.beside.replaceChildren(this.pinned >= 0 ? this.pinnedPanel() : this.insets());
  }

  wholeImage(place) {
    return hasImage(imageSlot(this.pool, place)) ? tile(this.pool, place, { whole: true, bare: true }) : null;
  }

  pinnedPanel() {
    const { pool, pinned } = this, near = this.neighbours(pinned), own = this.label[pinned];
    const tiles = near.map(({ other, similarity, right }) => tile(pool, other,
      { kind: right ? "right" : "wrong", line: nearness(this.run, similarity), onclick: () => this.pin(other), beside: pinned,
        relevance: this.several ? sharedLabels(pool, pinned, other) : undefined }));
    const button = (name, onclick) => h("button", { type: "button", class: "plain", onclick }, name);
    const highlight = own < 0 || this.several ? null : button("Show its class", () => this.find(own));
    const { ranked } = facts.runs[this.run].map.near, { n } = facts.pools[pool];
    const missing = ranked && this.near && this.nearAt(pinned) < 0
      ? `Neighbours were ranked for ${count(ranked)} random samples of ${count(n)}, without this one.` : "";
    const heading = `Nearest neighbours: ${near.filter(one => one.right).length} of ${near.length} `
      + (this.several ? "share a label" : "of its class");
    return h("div", { class: "pinned" },
      h("div", { class: "bar" }, h("h3", {}, nameOf(pool, pinned)), button("Close", () => this.pin(-1))),
      h("div", { class: "whole" }, this.wholeImage(pinned)), h("p", { class: "soft" }, captionOf(pool, pinned)), highlight,
      near.length ? h("h3", {}, heading) : null, missing ? h("p", { class: "soft" }, missing) : null,
      h("div", { class: "answers" }, tiles));
  }

  insets() {
    const { pool, view } = this;
    const zoomTo = ({ x, y, half }) => () => {
      view.fly(x, y, Math.min(view.wide, view.high) / (2.4 * half) / view.least);
      this.sea.scrollIntoView({ block: "nearest" });
    };
    const colour = place => this.cssOf(place);
    if (!this.regions.length) return h("p", { class: "soft" }, "Click a point to see its image and its nearest neighbours here.");
    const insets = this.regions.map((region, i) => inset(region, i + 1, view.now, pool, colour, zoomTo(region)));
    return h("div", { class: "insets" }, insets);
  }

  /** Draw over the points: frames of the magnified regions, or the pinned sample with lines to its neighbours. */
  overlay() {
    const { view } = this;
    this.showImages();
    if (view.moved < 1) return this.over.replaceChildren();
    if (this.pinned < 0) return this.over.replaceChildren(...this.regions.flatMap((region, i) => this.frameOf(region, i + 1)));
    const [x, y] = view.toScreen(this.pinned), ties = [], ends = [];
    for (const { other, right } of this.neighbours(this.pinned)) {
      const [ox, oy] = view.toScreen(other), kind = right ? "right" : "wrong";
      ties.push(svg("line", { class: `tie ${kind}`, x1: x, y1: y, x2: ox, y2: oy }));
      ends.push(svg("circle", { class: `end ${kind}`, cx: ox, cy: oy, r: 5 }));
    }
    return this.over.replaceChildren(...ties, ...ends, svg("circle", { class: "pin", cx: x, cy: y, r: 8 }));
  }

  /** Replace points by images at high zoom, once the map has stopped moving. */
  showImages() {
    clearTimeout(this.still);
    this.images.replaceChildren();
    if (this.view.zoom < CLOSE || this.pinned >= 0) return;
    const withImage = this.chosen < 0 ? this.withImage : this.withImage.filter(place => this.colouring.of(place) === this.chosen);
    const show = () => thumbnails(this.view, this.pool, withImage, THUMBNAIL, place => this.cssOf(place));
    this.still = setTimeout(() => this.images.replaceChildren(...show()), 140);
  }

  frameOf(region, number) {
    const [x, y] = this.view.onScreen(region.x, region.y), side = region.half * this.view.unit;
    return [svg("rect", { class: "region", x: x - side, y: y - side, width: 2 * side, height: 2 * side, rx: 3 }),
      svg("circle", { class: "plate", cx: x - side, cy: y - side, r: 9 }), svg("text", { x: x - side, y: y - side + 4 }, number)];
  }
}

/** Convert an OKLCH array or a "#rrggbb" text to red, green and blue. */
function asRgb(colour) {
  if (Array.isArray(colour)) return rgb(colour);
  return [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
}

fillSection("map", readMore, holder => new MapSection(holder));
