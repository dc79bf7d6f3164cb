// Reward functions, distributions, what cannot be judged, settings, and links.
const FIRST_REWARDS = 24;

function rewards(status) {
  const all = status.rewards;
  find("rewards-none").hidden = all.length > 0;
  attribute(find("rewards"), "class", all.length > 8 ? "many" : "few");
  const button = find("rewards-all");
  const open = button.getAttribute("aria-expanded") === "true";
  button.hidden = all.length <= FIRST_REWARDS;
  say(button, open ? t("rewards.fewer") : t("rewards.all", { count: all.length }));
  const ends = all.flatMap(({ mean, std }) => [numeric(mean), numeric(mean) - (numeric(std) || 0), numeric(mean) + (numeric(std) || 0)]).filter(Number.isFinite);
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const shown = open ? all : all.slice(0, FIRST_REWARDS);
  sync(find("rewards-list"), shown, (each) => each.function, makeReward, (node, each) => fillReward(node, each, low, high === low ? low + 1 : high));
}

function makeReward() {
  return el("li", {}, el("span", { class: "reward-name" }), svg("svg", { class: "reward-bar", viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" }),
    el("span", { class: "reward-mean number" }), el("span", { class: "reward-std" }));
}

function fillReward(node, each, low, high) {
  const [name, bar, mean, std] = node.children;
  say(name, each.function, each.function);
  number(mean, each.mean);
  say(std, (each.std ?? null) === null ? "" : `± ${short(each.std)}`, full(each.std));
  const [value, spread] = [numeric(each.mean), numeric(each.std) || 0];
  const print = [value, spread, low, high].join();
  if (bar.dataset.print === print) return;
  bar.dataset.print = print;
  const x = (at) => Math.min(100, Math.max(0, ((at - low) / (high - low)) * 100));
  bar.replaceChildren(svg("rect", { x: 0, y: 0, width: 100, height: 12, class: "track" }));
  if (value === null || !Number.isFinite(value)) return;
  const [from, to] = [Math.min(x(0), x(value)), Math.max(x(0), x(value))];
  bar.append(svg("rect", { x: from, y: 0, width: Math.max(0.8, to - from), height: 12, class: "filled" }));
  if (Number.isFinite(spread) && spread > 0) bar.append(svg("rect", { x: x(value - spread), y: 5, width: Math.max(0.5, x(value + spread) - x(value - spread)), height: 2, class: "spread" }));
  bar.append(svg("rect", { x: Math.max(0, x(0) - 0.3), y: 0, width: 0.6, height: 12, class: "zero" }));
}

function distributions(status) {
  const all = status.distributions;
  find("distributions-none").hidden = all.length > 0;
  find("distributions-key").hidden = !all.length;
  const count = Math.max(0, ...all.map((each) => each.recent_steps || 0));
  say(find("key-recent"), t("distributions.recent", { count }));
  sync(find("distributions-list"), all, idOf, makeDistribution, fillDistribution);
}

function makeDistribution(each) {
  const plot = new Distribution(called(each));
  const node = el("div", { class: "distribution" }, el("h3"), el("p", { class: "distribution-facts" }, el("span"), " ", el("span", { class: "bad" })), plot.root);
  node.plot = plot;
  return node;
}

function fillDistribution(node, each) {
  const [title, facts] = node.children;
  say(title, called(each), `${idOf(each)}: ${each.help || ""}`);
  const mean = each.count && each.sum !== null ? numeric(each.sum) / each.count : null;
  say(facts.children[0], t(mean === null ? "distribution.facts.none" : "distribution.facts", { count: each.count, mean: short(mean) }), `${full(each.count)}, ${full(mean)}`);
  const bad = Object.values(each.nonfinite || {}).reduce((sum, value) => sum + value, 0);
  say(facts.children[1], bad ? t("distribution.bad", { count: bad }) : "");
  node.plot.show(each, HEAT.get(idOf(each)));
}

// Conditions by the reason why they are not judged.
function blind(status) {
  const reasons = new Map();
  const because = (reason, what) => reasons.set(reason, [...(reasons.get(reason) || []), what]);
  for (const { reason, cause, condition } of status.not_judged) because(cause === "waiting" ? t("blind.waiting") : reason, condition.replaceAll("_", " "));
  for (const { reason, signal } of status.unavailable || []) because(reason, t("blind.signal", { signal }).replaceAll("_", " "));
  for (const { key, series } of status.guesses || []) because(t("blind.guessed"), `${key} → ${series}`);
  find("blind-none").hidden = reasons.size > 0;
  sync(find("blind-list"), [...reasons], ([reason]) => reason, () => el("li", {}, el("b"), el("span")), (node, [reason, conditions]) => {
    prose(node.children[0], reason);
    say(node.children[1], [...new Set(conditions)].join(", "));
  });
  const bad = [
    ...status.nonfinite.map(({ metric, kind, count }) => ["bad.nonfinite", metric, kind, count]),
    ...status.undefined.map(({ metric, count }) => ["bad.undefined", metric, "", count]),
  ].filter((each) => each[3]);
  find("bad-title").hidden = !bad.length;
  sync(find("bad-list"), bad, (each) => each.slice(0, 3).join(" "), () => el("li"), (node, [id, metric, kind, count]) => {
    say(node, t(id, { metric, kind, count }), full(count));
  });
  for (const list of [find("blind-list"), find("bad-list")]) attribute(list, "tabindex", list.children.length ? "0" : null); // they scroll
}

// Pairs of a word and a value. A value that is a number, or one that is not finite, is shown as numbers are.
function pairsInto(list, pairs) {
  sync(list, pairs, ([name]) => name, () => el("div", {}, el("dt"), el("dd")), (node, [name, value]) => {
    const [term, text] = node.children;
    say(term, name, name);
    if (typeof value === "number" || value === null || value in NOT_FINITE) number(text, value);
    else say(text, String(value), String(value));
    text.classList.toggle("words", typeof value !== "number");
  });
}

function settings(status) {
  const { run, links } = status;
  const own = Object.entries(status.hyperparameters).sort(([a], [b]) => (a < b ? -1 : 1));
  find("hyper-none").hidden = own.length > 0;
  pairsInto(find("hyper-list"), own);
  const about = Object.entries(run.info || {}).filter(([, value]) => value !== "");
  if (run.started) about.push([t("about.started"), clock(run.started)]);
  if ((run.last_checkpoint_step ?? null) !== null) about.push([t("about.checkpoint"), run.last_checkpoint_step]);
  const good = run.last_good_checkpoint ?? run.last_good_checkpoint_step ?? null;
  if (good !== null) about.push([t("about.good"), good]);
  pairsInto(find("about-list"), about);
  const shown = [["metrics", links.metrics], ["status", links.status], ["docs", links.docs]].filter(([, to]) => address(to));
  sync(find("links"), RECORDED ? shown.filter(([, to]) => /^http/.test(to)) : shown, ([name, to]) => name + to, ([name, to]) => link(to, t(`links.${name}`)), () => {});
}
