// The verdict: one word, why, the curve that shows it, and what to do. It is what most people came for.
// What the page says: the verdict of the process, unless that is gone.
function judged(status, connection) {
  const { verdict, run } = status;
  if (!lost(connection)) return verdict;
  const time = clock(connection.since);
  return {
    word: "act", code: "gone", conditions: [], runbook: "", steps: [{ text: t("gone.action"), command: "" }],
    text: run.step === null ? t("gone.text.none", { time }) : t("gone.text", { time, step: GROUPED.format(run.step) }),
    more: t("gone.before", { word: t(`word.${verdict.word}`), text: verdict.text }),
  };
}

function verdictSection(status, connection) {
  const said = judged(status, connection);
  const word = t(`word.${said.word in SHAPES ? said.word : "unknown"}`);
  attribute(document.documentElement, "data-word", said.word);
  show(find("verdict-icon"), said.word);
  say(find("verdict-word"), word);
  prose(find("verdict-text"), said.text);
  const cause = leading(status, said);
  more(said, status, connection);
  steps(said, cause);
  figure(said, cause);
  const title = harmless(t("title", { word, run: status.run.name }));
  if (document.title !== title) document.title = title;
  favicon(said.word);
  return { word, text: said.text };
}

// The condition that the verdict names first.
function leading(status, said) {
  const [first] = said.conditions || [];
  return status.conditions.find((each) => each.name === first) || null;
}

// What else there is to say of a process that is gone.
function more(said, status, connection) {
  const node = find("verdict-more");
  const words = said.more ? [said.more] : [];
  if (connection.over && connection.gone) words.push(t("gone.over", { state: t(`state.${status.run.state}`) }));
  node.hidden = !words.length;
  prose(node, words.join(SPACE));
}

// What to do, in order; a step that is a command can be copied.
function steps(said, cause) {
  const list = find("verdict-steps");
  list.hidden = !said.steps.length;
  sync(list, said.steps, (step) => step.text + step.command, makeStep, () => {});
  const runbook = said.runbook || cause?.runbook || "";
  const node = find("verdict-runbook");
  node.hidden = !runbook;
  if (node.dataset.to === runbook) return;
  node.dataset.to = runbook;
  const alert = cause?.alert || runbook.split("/").pop().replace(/\.md$/, "");
  node.replaceChildren(link(page(runbook), t("runbook.of", { alert })));
}

// The page about an alert comes with the exporter: no other host is needed.
function page(runbook) {
  return RECORDED || !address(runbook) ? runbook : runbook.replace(/^.*\/(\w+)\.md$/, "/runbooks/$1");
}

function makeStep({ text, command }) {
  const words = el("span");
  prose(words, text);
  if (!command) return el("li", {}, words);
  const code = el("code", { class: "command", tabindex: "0" }, harmless(command.replaceAll("{address}", RECORDED ? "ADDRESS" : location.origin)));
  const button = el("button", { type: "button" }, t("copy"));
  button.addEventListener("click", () => copy(code, button));
  return el("li", {}, words, el("div", { class: "typed" }, code, button));
}

// A browser lets a page write to the clipboard only where it trusts its address; else the command is selected.
async function copy(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    say(button, t("copied"));
  } catch {
    getSelection().selectAllChildren(code);
  }
}

// The curve of what is wrong, with the step since which it is.
function figure(said, cause) {
  const node = find("verdict-figure");
  const shown = said.curve ? curveOf(said.curve) : { steps: [] };
  node.hidden = !shown.steps.length;
  if (node.hidden) return;
  const id = idOf(said.curve);
  if (node.dataset.curve !== id) {
    node.dataset.curve = id;
    node.children[1]?.remove();
    node.curve = new Curve(called(said.curve), { height: 210 });
    node.append(node.curve.root);
  }
  const signal = said.curve.series === "rl_signal" ? said.curve.labels.signal : "";
  const name = called(signal ? { name: `rl_${signal}` } : said.curve);
  const judged = signal && cause?.signal === signal;
  const unit = judged ? unitOf(cause.signal_unit) : "";
  say(node.firstElementChild, unit ? `${name}, ${unit}` : name);
  const exact = judged && Number.isFinite(numeric(cause.threshold));
  node.curve.show({ ...shown, earlier: earlierOf(said.curve), events: [], since: cause?.since ?? null, limits: exact ? [{ value: cause.threshold, severity: cause.severity, below: cause.below, words: t(cause.below ? "limit.below" : "limit.above", { value: short(cause.threshold) }) }] : [] });
}

const COLORS = { fine: "#1f883d", look: "#bf8700", act: "#cf222e", unknown: "#6e7781" };

function favicon(word) {
  const node = document.querySelector('link[rel="icon"]');
  const [shape, mark] = SHAPES[word] || SHAPES.unknown;
  const picture = `<svg xmlns="${SVG}" viewBox="0 0 24 24"><path d="${shape}" fill="${COLORS[word] || COLORS.unknown}"/><path d="${mark}" fill="none" stroke="#fff" stroke-width="2.6" stroke-linecap="round"/></svg>`;
  attribute(node, "href", `data:image/svg+xml,${encodeURIComponent(picture)}`);
}
