// Charts: SVG lines and bars that show their values under the pointer, and heat maps on a canvas.

const DASHES = ["", "6 3", "2 3", "9 3 2 3", "1 5"];

/** About `many` round numbers between `low` and `high`. */
function ticks(low, high, many = 5) {
  const rough = (high - low) / many || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(one => one * power).find(one => one >= rough * 0.99);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-6; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** Powers of ten between `low` and `high`, with multiples of 2 and 5 if there are few of them. */
function decades(low, high) {
  const powers = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) powers.push(10 ** power);
  const fine = powers.length < 4 ? [1, 2, 5] : [1];
  const found = powers.flatMap(power => fine.map(one => one * power)).filter(tick => tick >= low && tick <= high);
  return found.length > 7 ? found.filter((_, i) => i % 2 === 0) : found;
}

function extent(values, log) {
  const known = values.filter(value => isNumber(value) && (!log || value > 0));
  let low = Infinity, high = -Infinity;
  for (const value of known) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  return low < high ? [low, high] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
}

/** Return an empty chart: its SVG element with axes, and the scales. */
function frame({ x, y, xName = "", yName = "", log = false, wide = 400, high = 230, label, written = digits }) {
  const left = 46, right = 10, top = 8, bottom = xName ? 38 : 24;
  const scale = (value, [low, end]) => (value - low) / (end - low);
  const lift = log ? Math.log10 : value => value;
  const toX = value => left + scale(value, x) * (wide - left - right);
  const toY = value => high - bottom - scale(lift(value), y.map(lift)) * (high - top - bottom);
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label });
  for (const tick of log ? decades(...y) : ticks(...y, 4)) {
    chart.append(svg("line", { class: "grid", x1: left, x2: wide - right, y1: toY(tick), y2: toY(tick) }),
      svg("text", { x: left - 6, y: toY(tick) + 4, "text-anchor": "end" }, (log ? digits : written)(tick).replace(".0 %", " %")));
  }
  for (const tick of ticks(...x, 5)) {
    chart.append(svg("text", { x: toX(tick), y: high - bottom + 16, "text-anchor": "middle" }, digits(tick)));
  }
  chart.append(svg("line", { class: "axis", x1: left, x2: wide - right, y1: high - bottom, y2: high - bottom }));
  if (xName) chart.append(svg("text", { x: (left + wide - right) / 2, y: high - 4, "text-anchor": "middle" }, xName));
  if (yName) chart.append(svg("text", { x: left, y: 0, "text-anchor": "start" }, yName));
  return { chart, toX, toY, wide, high, left, right, top, bottom, x };
}

/** Return a line as an SVG path with gaps at missing values. */
function pathOf(xs, ys, { toX, toY }, log) {
  let path = "", pen = false;
  ys.forEach((value, i) => {
    const there = isNumber(value) && isNumber(xs[i]) && (!log || value > 0);
    if (there) path += `${pen ? "L" : "M"}${toX(xs[i]).toFixed(1)} ${toY(value).toFixed(1)}`;
    pen = there;
  });
  return path;
}

/** Return the index of the nearest number in an ascending list. */
function nearestIndex(list, value) {
  let low = 0, high = list.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (list[middle] < value) low = middle; else high = middle; }
  return Math.abs(list[low] - value) <= Math.abs(list[high] - value) ? low : high;
}

/** Call `onMove(event, x, dots)` with the value of x under the pointer while it is over a chart. */
function follow(box, onMove) {
  const line = svg("line", { class: "cross", y1: box.top, y2: box.high - box.bottom, visibility: "hidden" });
  const dots = svg("g");
  box.chart.append(line, dots);
  const away = () => { line.setAttribute("visibility", "hidden"); dots.replaceChildren(); hideTip(); };
  const move = event => {
    const { left, width } = box.chart.getBoundingClientRect();
    const share = ((event.clientX - left) / width * box.wide - box.left) / (box.wide - box.left - box.right);
    const at = box.x[0] + clamp(share, 0, 1) * (box.x[1] - box.x[0]);
    line.setAttribute("visibility", "visible");
    line.setAttribute("x1", box.toX(at));
    line.setAttribute("x2", box.toX(at));
    dots.replaceChildren();
    onMove(event, at, dots);
  };
  box.chart.addEventListener("pointermove", move);
  box.chart.addEventListener("pointerdown", move);
  box.chart.addEventListener("pointerleave", away);
  box.chart.addEventListener("pointercancel", away);
}

/** Show a tooltip: a heading, then [kind, name, value] rows. */
function showReading(event, heading, rows) {
  const row = ([kind, name, value]) => h("div", { class: kind }, h("i", { class: "key" }), `${name} `, h("b", {}, value));
  showTip(event, h("div", { class: "soft" }, heading), ...rows.map(row));
}

/** A chart of lines `{ name, x, y, kind, dash }`; the pointer shows their values. */
function lineChart(lines, { label, xName = "", log = false, yEnds = null, xEnds = null, wide, high, written = digits }) {
  const y = yEnds ?? extent(lines.flatMap(line => line.y), log);
  const x = xEnds ?? extent(lines.flatMap(line => line.x));
  const box = frame({ x, y, xName, log, label, wide, high, written });
  for (const line of lines) {
    const single = line.y.filter(isNumber).length === 1, at = line.y.findIndex(isNumber);
    box.chart.append(single
      ? svg("circle", { class: `dot ${line.kind}`, r: 4, cx: box.toX(line.x[at]), cy: box.toY(line.y[at]) })
      : svg("path", { class: `line ${line.kind}`, d: pathOf(line.x, line.y, box, log), "stroke-dasharray": line.dash || null }));
  }
  follow(box, (event, at, dots) => {
    const read = lines.map(line => [line, nearestIndex(line.x, at)]).filter(([line, i]) => isNumber(line.y[i]));
    for (const [line, i] of read.filter(([line, i]) => !log || line.y[i] > 0)) {
      dots.append(svg("circle", { class: `dot ${line.kind}`, r: 3.5, cx: box.toX(line.x[i]), cy: box.toY(line.y[i]) }));
    }
    const where = read.length ? read[0][0].x[read[0][1]] : at;
    showReading(event, `${xName} ${digits(where)}`, read.map(([line, i]) => [line.kind, line.name, written(line.y[i])]));
  });
  return box;
}

/** A histogram of several kinds `{ name, value, kind }` with common bin edges, overlaid or `stacked`. */
function bars(edge, kinds, { label, xName = "", stacked = false, written = percent }) {
  const joined = (a, b) => stacked ? a + b : Math.max(a, b);
  const sum = edge.slice(1).map((_, i) => kinds.map(kind => kind.value[i] || 0).reduce(joined, 0));
  const box = frame({ x: [edge[0], edge.at(-1)], y: [0, Math.max(...sum) || 1], xName, label, written });
  const base = sum.map(() => 0);
  for (const { value, kind } of kinds) {
    let path = "";
    value.forEach((share, i) => {
      const [l, r, from, to] = [box.toX(edge[i]), box.toX(edge[i + 1]), box.toY(base[i]), box.toY(base[i] + (share || 0))];
      if (share) path += `M${l.toFixed(1)} ${from.toFixed(1)}V${to.toFixed(1)}H${r.toFixed(1)}V${from.toFixed(1)}Z`;
      if (stacked) base[i] += share || 0;
    });
    box.chart.append(svg("path", { class: `area ${kind}`, d: path }));
  }
  follow(box, (event, at) => {
    const i = clamp(edge.findIndex(one => one > at) - 1, 0, sum.length - 1) || 0;
    const rows = kinds.map(({ name, value, kind }) => [kind, name, written(value[i] || 0)]);
    showReading(event, `${digits(edge[i])} to ${digits(edge[i + 1])}`, rows);
  });
  return box;
}

/** A legend of `{ name, kind, dash }` entries. */
function legend(entries) {
  const sample = ({ name, kind, dash }) => h("span", { class: kind }, svg("svg", { viewBox: "0 0 26 8" },
    svg("line", { x1: 0, x2: 26, y1: 4, y2: 4, "stroke-dasharray": dash || null })), name);
  return h("div", { class: "legend" }, entries.map(sample));
}

/** A heat map with the names of its rows at the left and of its columns above it; names that do not fit are left out. */
function namedHeatMap(matrix, names, { rowName, columnName, ...how }) {
  const map = heatMap(matrix, how), axes = h("span", { class: "axis" }, `${rowName} ↓   ${columnName} →`);
  const list = kind => h("div", { class: kind }, names.map(name => h("span", { title: name }, name)));
  const whole = h("div", { class: "named" }, axes, list("top"), list("left"), map);
  const fit = () => {
    const cell = (map.clientWidth || 480) / names.length, every = Math.ceil(10 / cell);
    whole.style.setProperty("--name", `${clamp(cell * every * 0.9, 8, 12)}px`);
    whole.querySelectorAll(".left span, .top span").forEach((one, i) => {
      one.style.visibility = i % names.length % every ? "hidden" : "";
    });
  };
  new ResizeObserver(fit).observe(map);
  return whole;
}

/** A matrix as colours. Cells are square, or `line` pixels high; `read(i, j)` returns the tooltip of a cell. */
function heatMap(matrix, { label, read, line = null }) {
  const rows = matrix.length, columns = matrix[0].length, largest = Math.max(...matrix.flat().map(value => value || 0)) || 1;
  const canvas = h("canvas", { class: "heat", role: "img", "aria-label": label });
  const paint = () => {
    const wide = Math.round((canvas.clientWidth || 480) * devicePixelRatio);
    const tall = Math.round(line ? line * rows * devicePixelRatio : wide / columns * rows);
    canvas.width = wide;
    canvas.height = tall;
    const pen = canvas.getContext("2d"), colour = getComputedStyle(canvas).getPropertyValue("--heat");
    const [w, t, gap] = [wide / columns, tall / rows, wide / columns > 7 ? Math.round(devicePixelRatio) : 0];
    matrix.forEach((cells, i) => cells.forEach((value, j) => {
      pen.fillStyle = `rgba(${colour}, ${value > 0 ? 0.12 + 0.88 * Math.sqrt(value / largest) : 0.045})`;
      const [left, top] = [Math.round(j * w), Math.round(i * t)];
      pen.fillRect(left, top, Math.round((j + 1) * w) - left - gap, Math.round((i + 1) * t) - top - gap);
    }));
  };
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect();
    const i = Math.floor((event.clientY - box.top) / box.height * rows);
    const j = Math.floor((event.clientX - box.left) / box.width * columns);
    if (matrix[i]?.[j] !== undefined) showTip(event, ...read(i, j));
  });
  canvas.addEventListener("pointerleave", hideTip);
  new ResizeObserver(paint).observe(canvas);
  document.addEventListener("theme", paint);
  return canvas;
}
