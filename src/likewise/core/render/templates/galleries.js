// Queries of one run with their nearest neighbours.

/** A badge for a query whose own label is flagged: its errors may be errors of the label. */
const suspectBadge = suggested => h("span", { class: "badge" },
  suggested ? `its label looks wrong, perhaps ${suggested}` : "its label looks wrong");

/** How good the neighbours of a query are: the number of right ones, or the mean relevance. */
function summaryOf(neighbours) {
  const graded = neighbours.map(one => one[3]).filter(isNumber);
  if (!graded.length) return `${neighbours.filter(one => one[2]).length} of ${neighbours.length} right`;
  return `mean relevance ${(graded.reduce((sum, one) => sum + one, 0) / graded.length).toFixed(2)}`;
}

function queryRow(run, [place, value, neighbours]) {
  const { pool, main_metric: metric, suspects } = facts.runs[run];
  return h("article", { class: "query-row" },
    h("h4", {}, nameOf(pool, place), ` · ${summaryOf(neighbours)} · ${metric} ${percent(value)}`,
      ...(suspects && place in suspects ? [" ", suspectBadge(suspects[place])] : [])),
    tile(pool, place, { kind: "query", line: captionOf(pool, place), bare: Boolean(labelsOf(pool, place)) }),
    neighbourTiles(run, neighbours, place));
}

function drawGalleries(holder) {
  byRun(holder, i => more.runs[i].galleries, run => {
    const { galleries } = more.runs[run], names = Object.keys(galleries), { pool } = facts.runs[run], place = h("div");
    const { classes, labels: several } = facts.pools[pool], kind = several ? "label" : "class";
    const has = query => several ? labelsOf(pool, query).includes(wanted) : classOf(pool, query) === wanted;
    let shown = 0, wanted = -1;
    const show = () => {
      const ofClass = () => Object.values(galleries).flat().filter(([query]) => has(query));
      const some = wanted < 0 ? galleries[names[shown]] : ofClass();
      const once = [...new Map(some.map(one => [one[0], one])).values()];
      const rows = unfolding(once, query => queryRow(run, query), h("div"), 6);
      place.replaceChildren(...(once.length ? rows : [h("p", { class: "soft" }, `The page has no query of this ${kind}.`)]));
    };
    const tabs = choice("Queries", names, 0, i => { shown = i; show(); });
    const search = searchBox(`Search a ${kind}`, several?.names ?? classes, found => {
      if (found === wanted) return;
      wanted = found;
      show();
    });
    show();
    return [h("div", { class: "bar" }, tabs, search), place];
  });
}

fillSection("galleries", readNames, drawGalleries);
