// The questions. The first series of a card has the large curve, the others small ones; what is wrong comes first.
const LARGE = { learning: 190, stable: 190 };

// 2 for a number that is not finite, 1 for one that is the matter of a condition that holds.
function wrong(main, status) {
  if (typeof main.value === "string") return 2;
  const names = new Set((main.limits || []).map((each) => each.condition));
  return status.conditions.some((each) => each.word !== "fine" && names.has(each.name)) ? 1 : 0;
}

function cards(status) {
  sync(find("cards"), status.cards, (card) => card.question, makeCard, (node, card) => {
    attribute(node, "data-state", card.state);
    const [head, list, none] = node.children;
    show(head.children[0], card.state);
    say(head.children[1], known(`card.${card.question}`) ? t(`card.${card.question}`) : card.title || card.question);
    say(head.children[2], t(`word.${card.state === "unknown" ? "unknown" : card.state}`));
    none.hidden = card.main.length > 0;
    const mains = [...card.main].sort((a, b) => wrong(b, status) - wrong(a, status));
    const size = (main) => (main === mains[0] ? LARGE[card.question] || 120 : 0);
    sync(list, mains, (main) => `${idOf(main)} ${size(main)}`, (main) => makeMain(main, size(main)), (item, main) => fillMain(item, main, status));
  });
  find("legend").hidden = !status.cards.some((card) => card.main.length);
}

function makeCard(card) {
  const id = `card-${card.question.replace(/\W/g, "")}`;
  return el("article", { class: "card", "aria-labelledby": id },
    el("header", {}, el("span", { class: "card-icon", "aria-hidden": "true" }), el("h2", { id }), el("span", { class: "card-word" })),
    el("div", { class: "mains" }),
    el("p", { class: "none" }, t("card.none")));
}

function makeMain(main, large) {
  const name = called(main, main.name);
  const curve = new Curve(name, large ? { height: large } : { height: 34, size: "small" });
  const words = el("div", { class: "words" }, el("h3"), el("p", { class: "figure" }, el("span", { class: "number" }), " ", el("span", { class: "unit", lang: "en" })), el("p", { class: "limits" }));
  const node = el("div", { class: large ? "main first" : "main" }, words, curve.root);
  node.curve = curve;
  return node;
}

function fillMain(node, main, status) {
  const [title, figure, limits] = node.children[0].children;
  say(title, called(main, main.name), [idOf(main), main.unit].filter(Boolean).join(", "));
  number(figure.children[0], main.value);
  say(figure.children[1], main.unit === "fraction" ? "" : main.unit || "");
  const inForce = limitsOf(main);
  const named = inForce.map((each) => t("limit.named", { severity: t(`severity.${each.severity}`), value: `${each.below ? "<" : ">"} ${short(each.value)}` }));
  const usual = main.healthy ? t("usual", { range: main.healthy }) : "";
  const words = named.join(" · ") || usual;
  say(limits, words, [...inForce.map((each) => `${each.condition || t("limit")}: ${full(each.given)}`), usual].filter(Boolean).join("; ") || null);
  limits.classList.toggle("absent", !named.length);
  const steps = curveOf(main);
  const conditions = new Set((main.limits || []).map((each) => each.condition));
  const events = status.conditions.filter((each) => conditions.has(each.name) && each.step !== null).map(({ step, severity }) => ({ step, severity }));
  node.curve.root.hidden = !steps.steps.length && status.run.step > 0;
  node.classList.toggle("plain", node.curve.root.hidden);
  node.curve.show({ ...steps, limits: inForce, events });
}

// The limits in force: of each side the one that is met first, by severity. A warning beyond the critical one says nothing.
function limitsOf({ limits, threshold }) {
  const all = (limits || []).map((each) => ({ condition: each.condition, severity: each.severity, below: each.below, given: each.threshold, value: numeric(each.threshold) }));
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
