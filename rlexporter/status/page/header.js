// The head of the page: which run this is, where, and how far it has come.
function header(status, connection) {
  const { run } = status;
  const state = lost(connection) ? "gone" : run.state;
  say(find("run"), run.name || "–", run.name);
  const facts = [run.algorithm && run.algorithm.toUpperCase(), run.model, run.trainer, t("rank", { rank: run.rank }),
    run.attempt > 1 && t("attempt", { attempt: run.attempt }), ...where(status), ...Object.entries(run.labels || {}).map(([name, value]) => `${name}=${value}`)];
  sync(find("facts"), facts.filter(Boolean), (fact) => fact, () => el("span"), (node, fact) => say(node, fact, fact));
  const chip = find("state");
  say(chip, known(`state.${state}`) ? t(`state.${state}`) : state);
  chip.dataset.state = state;
  progress(run, state === "running");
}

// The machine and the process, and since when: for whoever has to go there.
function where({ run, process, time }) {
  const found = process ? [t("fact.process", { host: process.host, pid: process.pid })] : [];
  if (run.started) found.push(t("fact.started", { time: clock(run.started, true) }));
  if (run.started && ["starting", "running", "stuck"].includes(run.state)) found.push(t("fact.for", { time: duration(time - run.started) }));
  return found;
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
