// The curves that are always worth looking at, all of one size, and the questions, with what else answers them.
function limited(main, status) {
  const names = new Set((main.limits || []).map((each) => each.condition));
  return status.conditions.filter((each) => names.has(each.name));
}

// 2 for a number that is not finite, 1 for one that is the matter of a condition that holds.
function wrong(main, status) {
  return typeof main.value === "string" ? 2 : limited(main, status).some((each) => each.word !== "fine") ? 1 : 0;
}

function curves(status) {
  const large = status.cards.flatMap((card) => card.main).filter((main) => main.prominent);
  find("curves").hidden = !large.length;
  sync(find("curves-list"), large, idOf, (main) => makeMain(main, new Curve(called(main, main.name), { height: 150 }), "tile"), (node, main) => {
    fillMain(node, main, status);
    const worst = limited(main, status).map((each) => each.word);
    attribute(node, "data-state", typeof main.value === "string" || worst.includes("act") ? "act" : worst.includes("look") ? "look" : "");
  });
}

function cards(status) {
  sync(find("cards"), status.cards, (card) => card.question, makeCard, (node, card) => {
    attribute(node, "data-state", card.state);
    const [head, list, none] = node.children;
    show(head.children[0], card.state);
    say(head.children[1], known(`card.${card.question}`) ? t(`card.${card.question}`) : card.title || card.question);
    say(head.children[2], t(`word.${card.state === "unknown" ? "unknown" : card.state}`));
    none.hidden = card.main.length > 0;
    const rows = card.main.filter((main) => !main.prominent).sort((a, b) => wrong(b, status) - wrong(a, status));
    sync(list, rows, idOf, (main) => makeMain(main, new Curve(called(main, main.name), { height: 34, size: "small" }), "main"), (item, main) => fillMain(item, main, status));
  });
}

function makeCard(card) {
  const id = `card-${card.question.replace(/\W/g, "")}`;
  return el("article", { class: "card", "aria-labelledby": id },
    el("header", {}, el("span", { class: "card-icon", "aria-hidden": "true" }), el("h2", { id }), el("span", { class: "card-word" })),
    el("div", { class: "mains" }),
    el("p", { class: "none" }, t("card.none")));
}

function makeMain(main, curve, kind) {
  const words = el("div", { class: "words" }, el("h3"), el("p", { class: "figure" }, el("span", { class: "number" }), " ", el("span", { class: "unit" })), el("p", { class: "limits" }));
  const node = el("div", { class: kind }, words, curve.root);
  node.curve = curve;
  return node;
}

function fillMain(node, main, status) {
  const [title, figure, limits] = node.children[0].children;
  say(title, called(main, main.name), [idOf(main), main.unit].filter(Boolean).join(", "));
  number(figure.children[0], main.value);
  say(figure.children[1], unitOf(main.unit, main.value));
  const limit = nearestLimit(main);
  const usual = main.healthy ? t("usual", { range: main.healthy }) : "";
  const words = limit ? [limit.words, limit.relative && t("limit.own")].filter(Boolean).join(", ") : usual;
  const all = limitsOf(main).map((each) => `${each.condition || t("limit")} (${t(`severity.${each.severity}`)}): ${each.below ? "<" : ">"} ${full(each.given)}`);
  say(limits, words, [...all, usual].filter(Boolean).join("; ") || null);
  limits.classList.toggle("absent", !limit);
  const { steps, values } = curveOf(main);
  const events = limited(main, status).filter((each) => each.step !== null).map(({ step, severity }) => ({ step, severity }));
  node.curve.root.hidden = !steps.length && status.run.step > 0;
  node.classList.toggle("plain", node.curve.root.hidden);
  node.curve.show({ steps, values, limits: limit ? [limit] : [], events, band: bandOf(main), earlier: earlierOf(main), others: functionsBeside(main, status) });
}

// Where most of the values are that this number is the mean of.
const BANDS = new WeakMap();

function bandOf({ distribution, prominent }) {
  const heat = prominent && distribution ? HEAT.get(idOf({ series: distribution, labels: {} })) : null;
  if (!heat || !heat.steps.length) return undefined;
  if (!BANDS.has(heat)) {
    const marks = heat.counts.map((counts) => quantiles(heat, counts));
    const at = (step) => Math.max(1, step + (heat.every - 1) / 2);
    BANDS.set(heat, { steps: heat.steps.map(at), low: marks.map((each) => each[0]), values: marks.map((each) => each[2]) });
  }
  return BANDS.get(heat);
}

// The reward functions, where they are few enough to be told apart.
function functionsBeside(main, status) {
  if (idOf(main) !== 'rl_signal{signal="reward"}' && main.series !== "rl_reward_mean") return [];
  if (status.rewards.length < 2 || status.rewards.length > MOST_FUNCTIONS) return [];
  return status.rewards.map((each) => ({ name: each.function, ...curveOf({ series: "rl_reward_function_mean", labels: { reward_function: each.function } }) }));
}

// The limit of an alert that matters now: one that is crossed, the worst first, or else the nearest.
function nearestLimit(main) {
  const value = numeric(main.value);
  const all = limitsOf(main).filter((each) => each.severity !== "info");
  const crossed = all.filter((each) => (each.below ? value < each.value : value > each.value));
  const found = crossed.find((each) => each.severity === "critical") || crossed[0] || all.sort((a, b) => Math.abs(a.value - value) - Math.abs(b.value - value))[0];
  return found && { ...found, words: t(found.below ? "limit.below" : "limit.above", { value: short(found.value) }) };
}

// The limits in force: of each side the one that is met first, by severity. A warning beyond the critical one says nothing.
function limitsOf({ limits, threshold }) {
  const all = (limits || []).map((each) => ({ condition: each.condition, severity: each.severity, below: each.below, relative: each.relative, given: each.threshold, value: numeric(each.threshold) }));
  if (!all.length && (threshold ?? null) !== null) all.push({ severity: "warning", given: threshold, value: numeric(threshold) });
  const finite = all.filter((each) => each.value !== null && Number.isFinite(each.value));
  const first = (severity, below) => {
    const found = finite.filter((each) => each.severity === severity && Boolean(each.below) === below);
    return found.sort((one, other) => (below ? other.value - one.value : one.value - other.value))[0];
  };
  return [false, true].flatMap((below) => {
    const [warning, critical, info] = ["warning", "critical", "info"].map((severity) => first(severity, below));
    const useless = warning && critical && (below ? warning.value <= critical.value : warning.value >= critical.value);
    return [useless ? null : warning, critical, info].filter(Boolean);
  });
}
