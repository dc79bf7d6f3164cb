// The head of the page and its verdict: what most people came for.
function header(status, connection) {
  const { run } = status;
  const state = lost(connection) ? "gone" : run.state;
  say(find("run"), run.name || "–", run.name);
  const facts = [run.algorithm && run.algorithm.toUpperCase(), run.model, run.trainer, t("rank", { rank: run.rank }),
    run.attempt > 1 && t("attempt", { attempt: run.attempt }), ...Object.entries(run.labels || {}).map(([name, value]) => `${name}=${value}`)];
  sync(find("facts"), facts.filter(Boolean), (fact) => fact, () => el("span"), (node, fact) => say(node, fact, fact));
  const chip = find("state");
  say(chip, known(`state.${state}`) ? t(`state.${state}`) : state);
  chip.dataset.state = state;
  progress(run, state === "running");
}

// The process is gone in the middle of a run.
function lost(connection) {
  return connection.gone && !connection.over;
}

function progress(run, running) {
  const { step, steps_planned: planned } = run;
  const words = step === null ? t("step.none") : planned ? t("step.planned", { step: GROUPED.format(step), planned: GROUPED.format(planned) }) : t("step", { step: GROUPED.format(step) });
  say(find("step"), words);
  const bar = find("done");
  bar.hidden = !(planned > 0);
  if (planned > 0) {
    bar.value = Math.min(1, (step || 0) / planned);
    attribute(bar, "aria-label", t("done", { percent: percent((step || 0) / planned) }));
  }
  const rate = running ? run.steps_per_second : null;
  say(find("rate"), rate ? (rate >= 0.5 ? t("rate", { rate: short(rate) }) : t("rate.slow", { seconds: duration(1 / rate) })) : "", full(rate));
  const left = running ? run.seconds_left : null;
  say(find("left"), left === null || left === undefined ? "" : t("left", { time: duration(left) }));
  const ago = run.last_step_seconds_ago;
  const quiet = running && ago > Math.max(5, 3 / (rate || 1));
  say(find("ago"), quiet ? t("ago", { time: duration(ago) }) : "");
}

// What the page says: the verdict of the process, unless that is gone.
function judged(status, connection) {
  const { verdict, run } = status;
  if (!lost(connection)) return verdict;
  const time = clock(connection.since);
  return {
    word: "act", code: "gone", conditions: [], runbook: "", actions: [t("gone.action")],
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
  action(said, cause);
  facts(status, said, cause);
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

// What else there is to say; the verdict of the process has named the first of its conditions.
function more(said, status, connection) {
  const [named] = status.verdict.conditions;
  const others = status.conditions.filter((each) => each.word !== "fine" && !each.symptom && each.name !== named);
  const node = find("verdict-more");
  const words = [];
  if (said.more) words.push(said.more);
  if (connection.over && connection.gone) words.push(t("gone.over", { state: t(`state.${status.run.state}`) }));
  if (others.length) words.push(`${t("also")} ${[...new Set(others.map((each) => each.summary))].join(SPACE)}`);
  node.hidden = !words.length;
  prose(node, words.join(SPACE));
}

function action(said, cause) {
  const node = find("verdict-action");
  const actions = said.actions?.length ? said.actions : cause?.actions || [];
  const runbook = said.runbook || cause?.runbook || "";
  const print = JSON.stringify([actions, runbook]);
  node.hidden = !actions.length && !runbook;
  if (node.dataset.print === print) return;
  node.dataset.print = print;
  const text = el("span");
  prose(text, actions.slice(0, 2).join(SPACE));
  node.replaceChildren(...(actions.length ? [el("b", {}, t("todo")), " ", text, " "] : []));
  if (runbook) node.append(link(runbook, t("runbook.of", { alert: cause?.alert || runbook.split("/").pop().replace(/\.md$/, "") })));
}

function facts(status, said, cause) {
  const { run } = status;
  const good = run.last_good_checkpoint_step ?? null;
  const bad = said.word !== "fine" || cause;
  const pairs = [];
  if (cause) {
    pairs.push([t("fact.since"), cause.subject ? cause.since : cause.step], [t(countsNonfinite(cause) ? "fact.nonfinite" : "fact.value"), cause.value]);
    if (!countsNonfinite(cause) && (cause.threshold ?? null) !== null) pairs.push([t("fact.limit"), cause.threshold]);
    if (cause.count > 1) pairs.push([t("fact.count"), t("times", { count: cause.count })]);
  }
  if (run.exception) pairs.push([t("fact.exception"), run.exception]);
  if (bad && good !== null) pairs.push([t("fact.checkpoint"), good]);
  else if ((run.last_checkpoint_step ?? null) !== null) pairs.push([t("fact.checkpoint.newest"), run.last_checkpoint_step]);
  pairsInto(find("verdict-facts"), pairs);
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

const COLOURS = { fine: "#1f883d", look: "#bf8700", act: "#cf222e", unknown: "#6e7781" };

function favicon(word) {
  const node = document.querySelector('link[rel="icon"]');
  const [shape, mark] = SHAPES[word] || SHAPES.unknown;
  const picture = `<svg xmlns="${SVG}" viewBox="0 0 24 24"><path d="${shape}" fill="${COLOURS[word] || COLOURS.unknown}"/><path d="${mark}" fill="none" stroke="#fff" stroke-width="2.6" stroke-linecap="round"/></svg>`;
  attribute(node, "href", `data:image/svg+xml,${encodeURIComponent(picture)}`);
}
