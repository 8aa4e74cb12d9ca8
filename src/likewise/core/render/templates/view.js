// The view of the map: position, zoom, movement, and the point under the pointer.

const KEYS = "Map of the embedding: arrows move, plus and minus zoom, 0 shows all, Enter pins the middle, Escape unpins";
const REACH = 14, DEEPEST = 400, MAX_STRETCH = 1.6, CALM = matchMedia("(prefers-reduced-motion: reduce)");

class View {
  /** `callbacks`: hover(place, event), pick(place), drawn(); a place of -1 means no sample. */
  constructor(holder, callbacks) {
    this.callbacks = callbacks;
    this.canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": KEYS });
    holder.append(this.canvas);
    this.painter = glPainter(this.canvas) ?? plainPainter(this.canvas);
    this.now = new Float32Array(0);
    this.moved = 1;
    this.someChosen = false;
    this.fingers = new Map();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(holder);
  }

  /** Show points at these places (x, y from 0 to 1, one after the other); animated if the map had the same points before. */
  place(places) {
    const now = this.fit(places);
    const animated = this.now.length === now.length && !CALM.matches;
    this.painter.places(animated ? this.now : now, now);
    this.now = now;
    this.bounds = boundsOf(now);
    this.resize();
    this.home(false);
    if (animated) this.animate(500, share => { this.moved = share; });
  }

  /** Stretch the shorter axis of the places towards the shape of the frame, and lower the frame where that is not enough. */
  fit(places) {
    const { parentElement: holder } = this.canvas, [left, right, low, high] = boundsOf(places);
    holder.style.height = "";
    const shape = Math.max(high - low, 1e-6) / Math.max(right - left, 1e-6);
    const stretch = clamp(holder.clientHeight / holder.clientWidth / shape, 1 / MAX_STRETCH, MAX_STRETCH);
    const [x, y] = stretch > 1 ? [1, stretch] : [1 / stretch, 1];
    const needed = holder.clientWidth * shape * stretch;
    if (needed < holder.clientHeight) holder.style.height = `${Math.max(needed, 380)}px`;
    return places.map((value, i) => value * (i % 2 ? y : x));
  }

  look(colour, rank) {
    this.someChosen = rank.includes(1);
    this.painter.looks(colour, rank);
    this.draw();
  }

  resize() {
    this.wide = this.canvas.clientWidth;
    this.high = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.wide * devicePixelRatio);
    this.canvas.height = Math.round(this.high * devicePixelRatio);
    if (this.bounds && this.x === undefined) this.home(false);
    this.draw();
  }

  /** Pixels per unit of the map when the whole map is visible. */
  get least() {
    const [left, right, low, high] = this.bounds;
    return 0.94 * Math.min(this.wide / Math.max(right - left, 1e-6), this.high / Math.max(high - low, 1e-6));
  }

  get unit() { return this.least * this.zoom; }

  get atHome() { return this.zoom <= 1.001; }

  home(slowly = true) {
    const [left, right, low, high] = this.bounds;
    this.fly((left + right) / 2, (low + high) / 2, 1, slowly);
  }

  /** Move the centre and the zoom, at once or animated. */
  fly(x, y, zoom, slowly = true) {
    const from = [this.x, this.y, Math.log(this.zoom)], to = [x, y, Math.log(zoom)];
    const put = share => {
      const [nx, ny, nz] = to.map((end, i) => from[i] + (end - from[i]) * share);
      Object.assign(this, { x: nx, y: ny, zoom: Math.exp(nz) });
    };
    if (slowly && !CALM.matches) return this.animate(350, put);
    Object.assign(this, { x, y, zoom });
    return this.draw();
  }

  animate(duration, put) {
    const start = performance.now(), turn = this.turn = {};
    const step = time => {
      const share = clamp((time - start) / duration, 0, 1);
      put(share * share * (3 - 2 * share));
      this.draw();
      if (share < 1 && turn === this.turn) requestAnimationFrame(step);
      else if (share < 1) put(1);
    };
    requestAnimationFrame(step);
  }

  zoomAt(px, py, factor) {
    const zoom = clamp(this.zoom * factor, 1, DEEPEST), [x, y] = this.toMap(px, py);
    this.turn = null;
    this.moved = 1;
    const kept = this.zoom / zoom;
    Object.assign(this, { x: x + (this.x - x) * kept, y: y + (this.y - y) * kept, zoom });
    this.draw();
  }

  pan(dx, dy) {
    this.turn = null;
    this.moved = 1;
    const [left, right, low, high] = this.bounds;
    this.x = clamp(this.x - dx / this.unit, left, right);
    this.y = clamp(this.y + dy / this.unit, low, high);
    this.draw();
  }

  toScreen(place) { return this.onScreen(this.now[2 * place], this.now[2 * place + 1]); }

  onScreen(x, y) {
    return [(x - this.x) * this.unit + this.wide / 2, (this.y - y) * this.unit + this.high / 2];
  }

  toMap(px, py) { return [(px - this.wide / 2) / this.unit + this.x, this.y - (py - this.high / 2) / this.unit]; }

  /** The point nearest to a screen position; -1 if none is within reach. */
  nearest(px, py, reach = REACH) {
    const [x, y] = this.toMap(px, py), far = reach / this.unit;
    let best = -1, least = far * far;
    for (let i = 0; i < this.now.length / 2; i++) {
      const dx = this.now[2 * i] - x, dy = this.now[2 * i + 1] - y, gone = dx * dx + dy * dy;
      if (gone < least) { least = gone; best = i; }
    }
    return best;
  }

  /** Draw once, in the next animation frame. */
  draw() {
    if (this.scheduled || this.x === undefined) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      const size = clamp(3.8 * Math.sqrt(9000 / (this.now.length / 2 + 1)), 2.4, 8) * Math.min(this.zoom ** 0.4, 3);
      this.canvas.style.touchAction = this.atHome ? "pan-y" : "none";
      this.painter.draw(this, size, this.moved, this.someChosen);
      this.callbacks.drawn();
    });
  }

  listen() {
    const on = (name, act, options) => this.canvas.addEventListener(name, act, options);
    let scrolled = 0;
    addEventListener("scroll", () => { scrolled = performance.now(); }, { passive: true });
    on("wheel", event => {
      if (performance.now() - scrolled < 250 || (this.atHome && event.deltaY > 0)) return;  // the page is being scrolled
      event.preventDefault();
      this.zoomAt(event.offsetX, event.offsetY, Math.exp(-clamp(event.deltaY, -120, 120) * 0.004));
    }, { passive: false });
    on("dblclick", event => this.zoomAt(event.offsetX, event.offsetY, 2.5));
    on("pointerdown", event => this.down(event));
    on("pointermove", event => this.move(event));
    on("pointerup", event => this.up(event));
    on("pointercancel", event => this.fingers.delete(event.pointerId));
    on("pointerleave", event => { if (!this.fingers.size) this.callbacks.hover(-1, event); });
    on("keydown", event => this.key(event));
  }

  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.travelled = this.fingers.size > 1 ? Infinity : 0;
  }

  move(event) {
    const last = this.fingers.get(event.pointerId), next = [event.offsetX, event.offsetY];
    if (!last) return this.callbacks.hover(this.nearest(...next), event);
    const [dx, dy] = [next[0] - last[0], next[1] - last[1]];
    const other = [...this.fingers].find(([id]) => id !== event.pointerId)?.[1];
    this.travelled += Math.abs(dx) + Math.abs(dy);
    if (other) {
      const apart = ([x, y]) => Math.hypot(x - other[0], y - other[1]) || 1;
      this.zoomAt((next[0] + other[0]) / 2, (next[1] + other[1]) / 2, apart(next) / apart(last));
    }
    if (this.travelled > 4) { this.callbacks.hover(-1, event); this.pan(other ? dx / 2 : dx, other ? dy / 2 : dy); }
    this.fingers.set(event.pointerId, next);
  }

  up(event) {
    this.fingers.delete(event.pointerId);
    const reach = event.pointerType === "touch" ? 22 : REACH;
    if (this.travelled <= 4) this.callbacks.pick(this.nearest(event.offsetX, event.offsetY, reach));
  }

  key(event) {
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    const acts = { "+": () => this.step(1.5), "=": () => this.step(1.5), "-": () => this.step(1 / 1.5), 0: () => this.home(),
      Enter: () => this.callbacks.pick(this.nearest(this.wide / 2, this.high / 2, Infinity)),
      Escape: () => this.callbacks.pick(-1) };
    const act = moves[event.key] ? () => this.pan(...moves[event.key]) : acts[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  }

  step(factor) { this.zoomAt(this.wide / 2, this.high / 2, factor); }
}

/** Left, right, lowest and highest coordinate of all places. */
function boundsOf(places) {
  const found = [Infinity, -Infinity, Infinity, -Infinity];
  for (let i = 0; i < places.length; i += 2) {
    found[0] = Math.min(found[0], places[i]);
    found[1] = Math.max(found[1], places[i]);
    found[2] = Math.min(found[2], places[i + 1]);
    found[3] = Math.max(found[3], places[i + 1]);
  }
  return found;
}
