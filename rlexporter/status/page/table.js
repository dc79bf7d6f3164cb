// Every series, to search in; a row opens to its curve and its whole meaning.
const OPEN = new Map(); // the ids of the rows that are open -> {series, labels}
const OWN = /^(rl_condition|rl_threshold|rl_nearest_limit|rl_signal|rl_logged|rlexporter_)/; // about the watching: behind what is watched

function table(status) {
  const rows = [...status.series].sort((a, b) => OWN.test(a.name) - OWN.test(b.name));
  const words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => {
    const text = [row.name, labelled(row.labels), row.key, row.unit, row.help, row.level].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  say(find("found"), t("found", { found: GROUPED.format(found.length), count: rows.length }));
  const lines = found.flatMap((row) => (OPEN.has(idOf(row)) ? [{ row }, { row, opened: true }] : [{ row }]));
  sync(find("rows"), lines, ({ row, opened }) => `${opened ? "+" : ""}${idOf(row)}`,
    ({ row, opened }) => (opened ? makeOpened(row) : makeRow(row)),
    (node, { row, opened }) => (opened ? fillOpened(node, row) : fillRow(node, row)));
}

function makeRow(row) {
  const id = idOf(row);
  const button = el("button", { type: "button", class: "row", "aria-expanded": "false" }, el("code"));
  button.addEventListener("click", () => {
    if (!OPEN.delete(id)) OPEN.set(id, { series: row.name, labels: row.labels });
    refresh();
  });
  return el("tr", {}, el("th", { scope: "row" }, button), el("td", { class: "value number" }), el("td", { class: "unit", lang: "en" }),
    el("td", { class: "at number" }), el("td", { class: "from" }, el("code")), el("td", { class: "help", lang: "en" }, el("p")));
}

function fillRow(node, row) {
  const [name, value, unit, step, key, help] = node.children;
  const text = row.name + (Object.keys(row.labels || {}).length ? `{${labelled(row.labels)}}` : "");
  say(name.firstChild.firstChild, text);
  attribute(name.firstChild, "title", text);
  attribute(name.firstChild, "aria-expanded", OPEN.has(idOf(row)) ? "true" : "false");
  number(value, row.value);
  say(unit, row.unit || "");
  say(step, (row.step ?? null) === null ? "" : GROUPED.format(row.step));
  say(key.firstChild, row.key || "");
  prose(help.firstChild, row.help || "");
}

function makeOpened(row) {
  const curve = new Curve(row.name, { height: 150 });
  const node = el("tr", { class: "opened" }, el("td", { colspan: "6" }, el("p", { lang: "en" }), el("p", { class: "aside" }), curve.root));
  node.curve = curve;
  return node;
}

function fillOpened(node, row) {
  const [help, aside] = node.firstChild.children;
  prose(help, [row.help, row.reading].filter(Boolean).join(" "));
  const words = [row.key && t("row.key", { key: row.key }), row.level && t("row.level", { level: row.level }), row.healthy && t("row.usual", { range: row.healthy })];
  say(aside, words.filter(Boolean).join(SPACE));
  node.curve.show({ ...curveOf({ series: row.name, labels: row.labels }), limits: [], events: [] });
}
