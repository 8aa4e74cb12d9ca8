// Queries of one run with their nearest neighbours.

/** A badge for a query whose own label is flagged: its errors may be errors of the label. */
const suspectBadge = suggested => h("span", { class: "badge" },
  suggested ? `its label looks wrong, perhaps ${suggested}` : "its label looks wrong");

function queryRow(run, [place, value, neighbours]) {
  const { pool, main_metric: metric, suspects } = facts.runs[run], right = neighbours.filter(one => one[2]).length;
  return h("article", { class: "query-row" },
    h("h4", {}, h("b", {}, className(pool, place)), ` · ${right} of ${neighbours.length} right · ${metric} ${percent(value)}`,
      ...(suspects && place in suspects ? [" ", suspectBadge(suspects[place])] : [])),
    tile(pool, place, { kind: "query", line: captionOf(pool, place) }), neighbourTiles(run, neighbours));
}

function drawGalleries(holder) {
  byRun(holder, i => more.runs[i].galleries, run => {
    const { galleries } = more.runs[run], names = Object.keys(galleries), { pool } = facts.runs[run], place = h("div");
    let shown = 0, wanted = -1;
    const show = () => {
      const ofClass = () => Object.values(galleries).flat().filter(([query]) => classOf(pool, query) === wanted);
      const some = wanted < 0 ? galleries[names[shown]] : ofClass();
      const once = [...new Map(some.map(one => [one[0], one])).values()];
      const rows = unfolding(once, query => queryRow(run, query), h("div"), 6);
      place.replaceChildren(...(once.length ? rows : [h("p", { class: "soft" }, "The page has no query of this class.")]));
    };
    const tabs = choice("Queries", names, 0, i => { shown = i; show(); });
    const search = searchBox("Search a class", facts.pools[pool].classes, found => {
      if (found === wanted) return;
      wanted = found;
      show();
    });
    show();
    return [h("div", { class: "bar" }, tabs, search), place];
  });
}

fillSection("galleries", readNames, drawGalleries);
