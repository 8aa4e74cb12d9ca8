// Single labels of samples with several labels: number of samples, and how often the nearest neighbour has the label too.

/** A share as a bar, with a mark at the share that is expected by chance. */
function shareBar(share, chance) {
  const words = `${percent(share)}, by chance ${percent(chance)}`;
  const bar = h("span", { class: "share", role: "img", "aria-label": words }, h("i"), h("u"));
  bar.style.setProperty("--share", isNumber(share) ? share : 0);
  bar.style.setProperty("--chance", chance);
  return bar;
}

function labelLine(names, withRecall, [label, samples, queries, found, chance, recall]) {
  return h("tr", {}, h("th", { scope: "row" }, h("span", { class: "chip" }, breakable(names[label]))),
    h("td", { class: "number" }, count(samples)), h("td", { class: "number rest" }, count(queries)),
    h("td", { class: "drawn" }, shareBar(found, chance)), h("td", { class: "number" }, percent(found)),
    h("td", { class: "number soft rest" }, percent(chance)), withRecall ? h("td", { class: "number" }, percent(recall)) : null);
}

function drawLabels(holder) {
  byRun(holder, i => more.runs[i].labels, run => {
    const lines = more.runs[run].labels, { names } = facts.pools[facts.runs[run].pool].labels, place = h("div");
    const withRecall = lines.some(one => isNumber(one[5]));
    const orders = { "most frequent": lines, "least found": lines.filter(one => isNumber(one[3])).sort((a, b) => a[3] - b[3]) };
    const heads = ["Label", "Samples", "Queries", "", "Nearest has it", "By chance", ...(withRecall ? ["R@1"] : [])];
    const kinds = ["", "number", "number rest", "", "number", "number rest", "number"];
    const table = some => {
      const body = h("tbody"), [held, button] = unfolding(some, one => labelLine(names, withRecall, one), body, 15);
      return [h("div", { class: "wide" }, h("table", { class: "labels" }, h("thead", {}, h("tr", {}, heads.map((head, i) =>
        h("th", { scope: "col", class: kinds[i] }, head)))), held)), button];
    };
    const show = some => place.replaceChildren(...table(some));
    const tabs = choice("Order", Object.keys(orders), 0, i => show(Object.values(orders)[i]));
    const search = searchBox("Search a label", names, found => show(found < 0 ? lines : lines.filter(one => one[0] === found)));
    show(lines);
    return [h("div", { class: "bar" }, tabs, search), place];
  });
}

fillSection("labels", readNames, drawLabels);
