// The class tree, root on the left; branches can be opened and closed.

const LEAF = 19, OPEN = 36;

/** Nodes of a linkage: leaves first, then merges with their children. */
function treeNodes({ link, classes }, pool, grouping) {
  const names = facts.pools[pool].classes, group = grouping === null ? null : facts.pools[pool].groupings[grouping].of;
  const leaf = one => ({ name: names[one], first: names[one], height: 0, size: 1, group: group ? group[one] : -1 });
  const nodes = classes.map(leaf);
  for (const [a, b, height] of link) {
    const [left, right] = [nodes[a], nodes[b]];
    const group = left.group === right.group ? left.group : -1;
    nodes.push({ children: [left, right], height, size: left.size + right.size, group, open: false });
  }
  return nodes;
}

/** Sort children by the order of the leaves. */
function ordered(nodes, order) {
  const rank = new Map(order.map((leaf, i) => [leaf, i]));
  nodes.forEach((node, i) => { node.rank = node.children ? Math.min(...node.children.map(child => child.rank)) : rank.get(i); });
  for (const node of nodes) node.children?.sort((a, b) => a.rank - b.rank);
  for (const node of nodes) node.first = node.children ? node.children[0].first : node.first;
}

/** Open the highest branches until about `many` ends are visible. */
function openUntil(root, many) {
  const ends = [root];
  while (ends.length < many) {
    ends.sort((a, b) => b.height - a.height);
    if (!ends[0].children) break;
    const next = ends.shift();
    next.open = true;
    ends.push(...next.children);
  }
}

/** The height of the lowest merge. */
const lowest = node => node.children ? Math.min(node.height, ...node.children.map(lowest)) : Infinity;

/** The mark that opens and closes a branch, by mouse and keyboard. */
function foldMark(node, toggle) {
  const named = `${node.size} classes, such as ${node.first}`;
  const onkeydown = event => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    toggle();
  };
  return svg("g", { class: `fold ${node.open ? "" : "closed"}`, tabindex: 0, role: "treeitem", "aria-expanded": String(node.open),
    "aria-label": named, onclick: toggle, onkeydown }, svg("title", {}, named));
}

function drawBranches(root, colour, wide, redraw) {
  const text = clamp(wide * 0.42, 130, 260), reach = wide - text - 20, leaf = 0.9 * lowest(root);
  const x = height => 10 + reach * clamp((root.height - height) / (root.height - leaf || 1), 0, 1);
  const lines = svg("g"), marks = svg("g");
  const whole = svg("svg", { class: "branches", role: "tree", "aria-label": "Classes by similarity" }, lines, marks);
  let row = 0;
  const mark = (node, y) => {
    const dot = foldMark(node, () => { node.open = !node.open; redraw(); });
    dot.append(svg("circle", { cx: x(node.height), cy: y, r: node.open ? 3.5 : 5 }));
    dot.style.setProperty("--of", colour(node.group));
    marks.append(dot);
  };
  const visit = node => {
    if (!node.children || !node.open) {
      const y = row++ * LEAF + LEAF / 2 + 6, from = x(node.height);
      if (node.children) mark(node, y);
      const label = node.children ? `${node.first} and ${node.size - 1} more` : node.name, most = Math.floor(text / 6.6);
      const short = label.length > most ? `${label.slice(0, most - 1)}…` : label;
      marks.append(svg("text", { x: from + 9, y }, short, svg("title", {}, label)));
      return y;
    }
    const ys = node.children.map(visit), y = (ys[0] + ys[1]) / 2;
    node.children.forEach((child, i) => {
      const branch = svg("path", { d: `M${x(node.height).toFixed(1)} ${y}V${ys[i]}H${x(child.height).toFixed(1)}` });
      branch.style.setProperty("--of", colour(child.group));
      lines.append(branch);
    });
    mark(node, y);
    return y;
  };
  visit(root);
  whole.setAttribute("viewBox", `0 0 ${wide} ${row * LEAF + 12}`);
  return whole;
}

function drawTree(holder) {
  byRun(holder, i => more.runs[i].tree, run => {
    const { tree } = more.runs[run], { pool } = facts.runs[run];
    const nodes = treeNodes(tree, pool, tree.grouping), root = nodes.at(-1);
    const groups = tree.grouping === null ? [] : facts.pools[pool].groupings[tree.grouping].names, place = h("div");
    const colour = group => group < 0 ? "var(--soft)" : css(hue(group, groups.length));
    ordered(nodes, tree.order);
    openUntil(root, OPEN);
    const redraw = () => place.replaceChildren(drawBranches(root, colour, clamp(holder.clientWidth, 320, 1000), redraw));
    const openTo = many => () => {
      nodes.forEach(node => { node.open = false; });
      openUntil(root, many);
      redraw();
    };
    const button = (name, many) => h("button", { type: "button", class: "plain", onclick: openTo(many) }, name);
    const bar = nodes.length / 2 > OPEN ? h("div", { class: "bar" }, button("Open all", Infinity), button("Close", OPEN)) : null;
    const key = groups.slice(0, 24).map((name, i) => {
      const one = h("span", {}, h("i", { class: "key" }), name);
      one.style.setProperty("--run", colour(i));
      return one;
    });
    document.addEventListener("theme", redraw);
    redraw();
    const note = tree.note ? h("p", { class: "soft" }, tree.note) : null;
    return [note, key.length ? h("div", { class: "legend" }, key) : null, bar, place];
  });
}

fillSection("tree", readMore, drawTree);
