// The same queries in two runs, each with its nearest neighbours.

function comparedRow({ a, b, metric }, [ours, theirs]) {
  const { pool } = facts.runs[a], [place] = ours;
  const side = (run, [, value, neighbours]) => {
    const heading = `${facts.runs[run].name} · ${metric} ${percent(value)}`;
    const head = h("h5", { class: runKind(run) }, h("i", { class: "key" }), heading);
    return h("div", {}, head, neighbourTiles(run, neighbours, place));
  };
  return h("article", { class: "query-row" }, h("h4", {}, nameOf(pool, place)),
    tile(pool, place, { kind: "query", line: captionOf(pool, place) }),
    h("div", { class: "twice" }, side(a, ours), side(b, theirs)));
}

function drawCompared(holder) {
  const both = more.compared.filter(one => one.queries.length), place = h("div");
  const show = i => place.replaceChildren(h("p", { class: "lead" }, both[i].conclusion),
    h("p", { class: "soft" }, "Queries with the largest change come first."),
    ...unfolding(both[i].queries, pair => comparedRow(both[i], pair), h("div"), 4));
  const buttons = oneOf("Compare", both.map(({ a, b }) => `${facts.runs[a].name} and ${facts.runs[b].name}`), 0, show);
  holder.replaceChildren(...[buttons && h("div", { class: "bar" }, buttons), place].filter(Boolean));
  show(0);
}

fillSection("compared", readNames, drawCompared);
