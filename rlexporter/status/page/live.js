// Asking, and what is shown of the answers. Starts the page.
const EVERY = { shown: 2000, hidden: 15000, over: 5000 }; // milliseconds between two questions, at the least
const PATIENCE = 8000;
const GONE_AFTER = 2; // questions without an answer
const HISTORY_EVERY = 5; // questions; between them the newest values are put behind the curves
const YOUNG = 50; // steps, until which a curve may come into being with each answer
const MOST_SERIES = 50;
const HEAT_EVERY = 3 * HISTORY_EVERY;
const MOST_FUNCTIONS = 4; // reward functions that are drawn beside the reward

const HELD = RECORDED ? JSON.parse(find("data").textContent) : null;
const CURVES = new Map();
const HEAT = new Map(); // the heat maps of the distributions
const EARLIER = { run: null, curves: new Map() }; // the run to compare with
const MARKS = { all: [] };
const SOUGHT = new Set(); // the series whose curves were asked for; some have none
const connection = { gone: false, over: false, since: 0, failures: 0, error: null, wait: 0 };
let status = null;
let asked = 0;
let changed = 0; // when the state did: the last steps come after the end is told
let asking = false;
let timer = 0;
let told = "";

function curveOf(each) {
  return CURVES.get(idOf(each)) || NOTHING;
}

const NOTHING = { steps: [], values: [] };

// The same curve of the run to compare with.
function earlierOf(each) {
  return EARLIER.curves.get(idOf(each)) || NOTHING;
}

function takeEarlier(run) {
  EARLIER.run = run;
  EARLIER.curves = new Map(run.curves.map((curve) => [idOf(curve), { steps: curve.steps, values: curve.values.map(numeric) }]));
}

function earlier() {
  const { run } = EARLIER;
  say(find("earlier"), run ? t("earlier", { run: run.name, step: GROUPED.format(run.step), word: known(`word.${run.word}`) ? t(`word.${run.word}`) : run.word }) : "");
}

function takeHistory(history) {
  if (history.earlier) takeEarlier(history.earlier);
  MARKS.all = history.marks || [];
  for (const each of history.heat_maps || []) HEAT.set(idOf(each), each);
  for (const curve of history.curves) {
    CURVES.set(idOf(curve), { steps: curve.steps, values: curve.values.map(numeric) });
  }
}

// What the answer says goes behind the curves, so that these need not be asked for each time.
function append(answer) {
  const now = [...answer.cards.flatMap((card) => card.main).map((main) => [idOf(main), answer.run.step, main.value]),
    ...answer.series.map((row) => [idOf(row), row.step, row.value])];
  for (const [id, step, value] of now) {
    const curve = CURVES.get(id);
    if (!curve || (step ?? null) === null || (value ?? null) === null) continue;
    if (!curve.steps.length || step > curve.steps[curve.steps.length - 1]) {
      curve.steps.push(step);
      curve.values.push(numeric(value));
    }
  }
}

function wanted() {
  const functions = status.rewards.length <= MOST_FUNCTIONS ? ["rl_reward_function_mean"] : [];
  const names = [...functions, ...(status.verdict.curve ? [idOf(status.verdict.curve)] : []), ...TIMELINE, ...status.cards.flatMap((card) => card.main.map((main) => (main.series === "rl_signal" ? idOf(main) : main.series))), ...[...OPEN.values()].map((each) => each.series)];
  return [...new Set(names)].slice(0, MOST_SERIES);
}

async function get(path) {
  const stop = new AbortController();
  const late = setTimeout(() => stop.abort(), PATIENCE);
  try {
    const answer = await fetch(path, { signal: stop.signal, cache: "no-store", credentials: "same-origin" });
    if (!answer.ok) throw Object.assign(new Error(path), { status: answer.status });
    if (answer.headers.has("Retry-After")) connection.wait = 1000 * answer.headers.get("Retry-After"); // longer where many pages ask
    return await answer.json();
  } finally {
    clearTimeout(late);
  }
}

async function history() {
  const names = wanted();
  for (const name of names) SOUGHT.add(name);
  const asks = names.map((name) => `series=${encodeURIComponent(name)}`);
  if (TOGETHER.range) asks.push("points=2000");
  if (asked % HEAT_EVERY === 0 || status.run.step < YOUNG) asks.push("heat_maps=1");
  if (asked === 0) asks.push("earlier=1");
  if (names.length) takeHistory(await get(`api/history?${asks.join("&")}`));
  await askCompletions();
}

async function ask() {
  if (asking) return;
  asking = true;
  clearTimeout(timer);
  try {
    const answer = await get(`api/status?lang=${LANGUAGE}`);
    if (status && [status.run.name, status.run.started, status.run.attempt].join() !== [answer.run.name, answer.run.started, answer.run.attempt].join()) {
      CURVES.clear();
      HEAT.clear();
      Object.assign(EARLIER, { run: null, curves: new Map() });
      asked = 0;
    }
    if (status?.run.state !== answer.run.state) changed = asked;
    status = answer;
    const young = status.run.step < YOUNG;
    if (asked % HISTORY_EVERY === 0 || asked - changed < 2 || young || wanted().some((name) => !SOUGHT.has(name))) await history();
    else append(answer);
    asked += 1;
    Object.assign(connection, { gone: false, failures: 0, since: 0, error: null });
  } catch (error) {
    connection.failures += 1;
    connection.wait = 0;
    connection.error = error.status || null;
    connection.since ||= Date.now() / 1000;
    connection.gone = connection.failures >= GONE_AFTER;
  }
  connection.over = Boolean(status) && !["starting", "running", "stuck", "unknown"].includes(status.run.state);
  asking = false;
  refresh();
  const every = document.hidden ? EVERY.hidden : connection.over || connection.gone ? EVERY.over : EVERY.shown;
  timer = setTimeout(ask, Math.max(every, connection.wait));
}

function refresh() {
  linkState();
  if (!status) return;
  header(status, connection);
  const said = verdictSection(status, connection);
  curves(status);
  earlier();
  cards(status);
  timeline(status);
  alerts(status);
  rewards(status);
  completions();
  distributions(status);
  blind(status);
  table(status);
  settings(status);
  announce(said);
}

function linkState() {
  const node = find("link");
  const failing = connection.failures > 0;
  const time = failing ? clock(connection.since) : status ? clock(status.time) : "";
  const id = RECORDED ? "recorded" : failing ? (connection.error ? "error" : "gone") : !status ? "" : connection.over ? "over" : "live";
  node.dataset.link = id;
  say(find("link-text"), id ? t(`link.${id}`, { time, status: connection.error }) : t("waiting"), RECORDED || !status ? null : clock(status.time));
}

// Another part of the run is shown: finer curves are asked for, and there is a way back.
function zoomed() {
  const button = find("whole");
  button.hidden = !TOGETHER.range;
  if (TOGETHER.range) say(button, t("zoom.whole", { from: GROUPED.format(TOGETHER.range[0]), to: GROUPED.format(TOGETHER.range[1]) }));
  if (RECORDED || !TOGETHER.range) return;
  asked = Math.ceil(asked / HISTORY_EVERY) * HISTORY_EVERY;
  ask();
}

// To a screen reader: the verdict when it changes, and that the process is gone or back.
function announce({ word, text }) {
  const now = `${word} ${text.replace(/[\d.,]+/g, "#")} ${connection.gone}`;
  if (now === told) return;
  say(find("news"), `${told.endsWith("true") && !connection.gone ? `${t("back")} ` : ""}${t("news", { word, text })}`);
  told = now;
}

function begin() {
  attribute(document.documentElement, "lang", LANGUAGE === "zh" ? "zh-Hans" : LANGUAGE);
  languages();
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  attribute(find("search"), "placeholder", t("search"));
  attribute(document.documentElement, "data-word", "unknown");
  show(find("verdict-icon"), "unknown");
  say(find("verdict-word"), t("word.unknown"));
  say(find("verdict-text"), t("waiting"));
  find("search").addEventListener("input", refresh);
  find("whole").addEventListener("click", () => zoom(null));
  find("rewards-all").addEventListener("click", (event) => {
    const open = event.currentTarget.getAttribute("aria-expanded") === "true";
    attribute(event.currentTarget, "aria-expanded", open ? "false" : "true");
    refresh();
  });
  if (RECORDED) {
    status = HELD.status;
    takeHistory(HELD.history);
    find("check").hidden = !HELD.check;
    say(find("check-text"), HELD.check || "");
    refresh();
  } else {
    document.addEventListener("visibilitychange", () => document.hidden || ask());
    ask();
  }
}

begin();
