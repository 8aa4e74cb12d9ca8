// The same queries, answered by two runs.

function comparedRow({ a, b, metric }, [ours, theirs]) {
  const { pool } = facts.runs[a], [place] = ours;
  const side = (run, [, value, answers]) => {
    const told = `${facts.runs[run].name} · ${metric} ${percent(value)}`;
    return h("div", {}, h("h5", { class: runKind(run) }, h("i", { class: "key" }), told), answerTiles(run, answers));
  };
  return h("article", { class: "asked" }, h("h4", {}, h("b", {}, className(pool, place))),
    tile(pool, place, { kind: "query", line: captionOf(pool, place) }),
    h("div", { class: "twice" }, side(a, ours), side(b, theirs)));
}

function drawCompared(holder) {
  const both = more.compared.filter(one => one.queries.length), place = h("div");
  const show = i => place.replaceChildren(h("p", { class: "lead" }, both[i].verdict),
    h("p", { class: "soft" }, "Queries that changed most come first."),
    ...unfolding(both[i].queries, pair => comparedRow(both[i], pair), h("div"), 4));
  const buttons = oneOf("Compare", both.map(({ a, b }) => `${facts.runs[a].name} and ${facts.runs[b].name}`), 0, show);
  holder.replaceChildren(...[buttons && h("div", { class: "bar" }, buttons), place].filter(Boolean));
  show(0);
}

fillSection("compared", readNames, drawCompared);
