// Queries with their answers: of one run, and of two beside each other.

function answerTiles(run, answers) {
  const tiles = answers.map(([place, similarity, right]) =>
    tile(facts.runs[run].pool, place, { kind: right ? "right" : "wrong", line: nearness(run, similarity) }));
  return h("div", { class: "answers", style: `--many: ${clamp(answers.length, 4, 10)}` }, tiles);
}

function askedRow(run, [place, value, answers]) {
  const { pool, decides } = facts.runs[run], right = answers.filter(answer => answer[2]).length;
  return h("article", { class: "asked" },
    h("h4", {}, h("b", {}, className(pool, place)), ` · ${right} of ${answers.length} right · ${decides} ${percent(value)}`),
    tile(pool, place, { kind: "query", line: captionOf(pool, place) }), answerTiles(run, answers));
}

function drawGalleries(holder) {
  byRun(holder, i => Object.keys(more.runs[i].galleries).length, run => {
    const { galleries } = more.runs[run], names = Object.keys(galleries), { pool } = facts.runs[run], place = h("div");
    let shown = 0, wanted = -1;
    const show = () => {
      const ofClass = () => Object.values(galleries).flat().filter(([query]) => classOf(pool, query) === wanted);
      const some = wanted < 0 ? galleries[names[shown]] : ofClass();
      const once = [...new Map(some.map(one => [one[0], one])).values()];
      const rows = unfolding(once, asked => askedRow(run, asked), h("div"), 6);
      place.replaceChildren(...(once.length ? rows : [h("p", { class: "soft" }, "No query of this class is in the page.")]));
    };
    const tabs = choice("Which queries", names, 0, i => { shown = i; show(); });
    const search = searchBox("Search a class", facts.pools[pool].classes, found => {
      if (found === wanted) return;
      wanted = found;
      show();
    });
    show();
    return [h("div", { class: "bar" }, tabs, search), place];
  });
}

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
