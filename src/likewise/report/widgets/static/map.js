// View of MapWidget: points on a canvas, the image under the pointer, and a selection by lasso or box.

const HEIGHT = 480, MARGIN = 12, REACH = 8, MAX_IMAGES = 400;
const STATES = [["rgb(140 140 140 / 0.45)", "not suspect"], ["#e4572e", "suspect"], ["rgb(120 120 200 / 0.5)", "unknown"]];

const numbers = (view, Kind) => new Kind(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
// Hues a golden angle apart differ for neighbouring class numbers.
const hue = (label) => `hsl(${(label * 137.508) % 360} 65% ${45 + 15 * (Math.floor(label / 12) % 2)}%)`;

function make(tag, name, ...children) {
  const one = document.createElement(tag);
  if (name) one.className = name;
  one.append(...children);
  return one;
}

function isInside(x, y, corners) {
  let inside = false;
  for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
    const [ax, ay] = corners[i], [bx, by] = corners[j];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}

function render({ model, el }) {
  const points = numbers(model.get("points"), Float32Array), labels = numbers(model.get("labels"), Uint32Array), names = model.get("names");
  const suspects = numbers(model.get("suspects"), Uint8Array), count = labels.length;
  const root = make("div", "likewise-widget lw-map"), canvas = make("canvas"), tip = make("div", "lw-tip"), status = make("span", "lw-count");
  const button = (words, act) => { const one = make("button", "", words); one.type = "button"; one.addEventListener("click", act); return one; };
  const lasso = button("Lasso", () => { tool = "lasso"; draw(); }), box = button("Box", () => { tool = "box"; draw(); });
  const byClass = button("By class", () => paint("class")), bySuspect = button("By suspect label", () => paint("suspect"));
  bySuspect.hidden = !suspects.length;
  const clear = button("Clear", () => select(new Uint32Array(0)));
  canvas.tabIndex = 0;
  tip.hidden = true;
  root.append(make("div", "lw-buttons", lasso, box, clear, byClass, bySuspect, status), make("div", "lw-canvas", canvas, tip));
  el.append(root);
  root.querySelectorAll("button, canvas").forEach((one) => one.setAttribute("data-lm-suppress-shortcuts", "true"));

  let tool = "lasso", zoom = 1, middle = [0, 0], width = 0, trail = null, shownRow = -1, disposed = false;
  const images = new Map();

  const scale = () => (zoom * (Math.min(width, HEIGHT) - 2 * MARGIN)) / 2;
  const atX = (n) => width / 2 + (points[2 * n] - middle[0]) * scale();
  const atY = (n) => HEIGHT / 2 - (points[2 * n + 1] - middle[1]) * scale();
  const selected = () => numbers(model.get("selected"), Uint32Array);

  function paint(kind) {
    model.set("colour", kind);
    model.save_changes();
  }

  function select(rows) {
    model.set("selected", new DataView(rows.buffer));
    model.save_changes();
    draw();
  }

  // Points by colour, so that the colour of the canvas changes once per class; suspect labels come last, on top.
  function layers() {
    if (model.get("colour") === "suspect" && suspects.length) return [0, 2, 1].map((state) => [STATES[state][0], (n) => suspects[n] === state]);
    return null;
  }

  function draw() {
    if (disposed) return;
    const dense = window.devicePixelRatio || 1, pen = canvas.getContext("2d"), size = count > 20000 ? 2 : count > 2000 ? 3 : 5;
    width = root.clientWidth || 640;
    Object.assign(canvas, { width: width * dense, height: HEIGHT * dense });
    canvas.style.height = `${HEIGHT}px`;
    pen.scale(dense, dense);
    const dot = (n, side) => pen.fillRect(atX(n) - side / 2, atY(n) - side / 2, side, side);
    const found = layers();
    if (found) {
      for (const [colour, has] of found) {
        pen.fillStyle = colour;
        for (let n = 0; n < count; n++) if (has(n)) dot(n, size);
      }
    } else {
      for (const n of byLabel) {
        const colour = hues[labels[n]];
        if (pen.lwColour !== colour) pen.fillStyle = pen.lwColour = colour;
        dot(n, size);
      }
      pen.lwColour = "";
    }
    const rows = selected();
    pen.fillStyle = getComputedStyle(root).color;
    for (const n of rows) dot(n, size + 2);
    if (trail) drawTrail(pen);
    status.textContent = `${count.toLocaleString("en")} points, ${rows.length.toLocaleString("en")} selected`;
    const colour = model.get("colour");
    for (const [one, on] of [[lasso, tool === "lasso"], [box, tool === "box"], [byClass, colour === "class"], [bySuspect, colour === "suspect"]]) one.classList.toggle("lw-chosen", on);
  }

  function drawTrail(pen) {
    pen.beginPath();
    outline().forEach(([x, y], n) => (n ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.closePath();
    pen.strokeStyle = getComputedStyle(root).color;
    pen.setLineDash([4, 3]);
    pen.stroke();
  }

  function outline() {
    if (tool === "lasso") return trail;
    const [ax, ay] = trail[0], [bx, by] = trail[trail.length - 1];
    return [[ax, ay], [bx, ay], [bx, by], [ax, by]];
  }

  const place = (event) => { const edge = canvas.getBoundingClientRect(); return [event.clientX - edge.left, event.clientY - edge.top]; };

  function nearest(x, y) {
    let best = -1, least = REACH * REACH;
    for (let n = 0; n < count; n++) {
      const far = (atX(n) - x) ** 2 + (atY(n) - y) ** 2;
      if (far <= least) [best, least] = [n, far];
    }
    return best;
  }

  function hover(x, y) {
    const row = nearest(x, y);
    if (row === shownRow) return;
    shownRow = row;
    tip.hidden = row < 0;
    if (row < 0) return;
    const note = suspects.length && suspects[row] ? ` (${STATES[suspects[row]][1]})` : "";
    tip.replaceChildren(make("div", "", `${names[labels[row]]}${note}`), make("div", "lw-quiet", `index ${row}`));
    tip.style.left = `${Math.min(atX(row) + 12, Math.max(width - 160, 0))}px`;
    tip.style.top = `${Math.min(atY(row) + 12, HEIGHT - 60)}px`;
    if (!model.get("pictures")) return;
    if (images.has(row)) return showImage(row);
    setTimeout(() => { if (shownRow === row && !disposed && !images.has(row)) model.send({ row }); }, 60);
  }

  function showImage(row) {
    const { url, error } = images.get(row);
    tip.prepend(url ? Object.assign(make("img"), { src: url, alt: "" }) : make("div", "lw-missing", error));
  }

  function receive(content, buffers) {
    if (!content || content.image === undefined) return;
    const keep = (found) => {
      if (images.size >= MAX_IMAGES) images.delete(images.keys().next().value);
      const isNew = !images.has(content.image);
      images.set(content.image, found);
      if (isNew && shownRow === content.image) showImage(content.image);
    };
    if (content.error) return keep({ error: content.error });
    const reader = new FileReader();
    reader.onload = () => keep({ url: reader.result });
    reader.readAsDataURL(new Blob([buffers[0]], { type: "image/jpeg" }));
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    trail = [place(event)];
    tip.hidden = true;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (!trail) return hover(x, y);
    const [lastX, lastY] = trail[trail.length - 1];
    if (Math.hypot(x - lastX, y - lastY) < 3) return;
    trail.push([x, y]);
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!trail) return;
    const corners = outline(), isDrag = trail.length > 1;
    trail = null;
    shownRow = -1;
    if (!isDrag) return draw();
    const rows = new Set(event.shiftKey ? selected() : []);
    for (let n = 0; n < count; n++) if (isInside(atX(n), atY(n), corners)) rows.add(n);
    select(Uint32Array.from(rows).sort());
  });
  canvas.addEventListener("pointercancel", () => { trail = null; draw(); });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; shownRow = -1; });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const [x, y] = place(event), before = scale();
    zoom = Math.min(200, Math.max(1, zoom * (event.deltaY < 0 ? 1.25 : 0.8)));
    const by = 1 / before - 1 / scale();
    middle = zoom === 1 ? [0, 0] : [middle[0] + (x - width / 2) * by, middle[1] - (y - HEIGHT / 2) * by];
    draw();
  }, { passive: false });
  canvas.addEventListener("dblclick", () => { zoom = 1; middle = [0, 0]; draw(); });
  root.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Escape") select(new Uint32Array(0));
  });

  const hues = names.map((_, label) => hue(label));
  const byLabel = Uint32Array.from({ length: count }, (_, n) => n).sort((a, b) => labels[a] - labels[b] || a - b);
  const reactions = [["change:selected", draw], ["change:colour", draw], ["msg:custom", receive]];
  reactions.forEach(([event, act]) => model.on(event, act));
  const watcher = new ResizeObserver(() => { if (root.clientWidth && root.clientWidth !== width) draw(); });
  watcher.observe(root);
  draw();
  return () => {
    disposed = true;
    watcher.disconnect();
    reactions.forEach(([event, act]) => model.off(event, act));
  };
}

export default { render };
