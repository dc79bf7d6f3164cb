// One strip over all steps: the reward, what went wrong and for how long, checkpoints and evaluations. What is over stays.
const TIMELINE = ["rl_reward_mean"];
const ROWS = 8; // of alerts, the likeliest cause first
const [TOP, HEIGHT, ROW, FOOT] = [6, 44, 15, 20];

class Timeline extends Plot {
  constructor() {
    super(t("timeline"), HEIGHT, "large");
    this.shown = { first: 0, last: 0, reward: { steps: [], values: [] }, bars: [], marks: [] };
    TOGETHER.plots.add(this);
  }

  show(shown) {
    const print = JSON.stringify([shown.first, shown.last, shown.reward.values.length, shown.bars, shown.marks.length]);
    if (print === this.last) return;
    this.last = print;
    this.shown = shown;
    this.height = TOP + HEIGHT + shown.bars.length * ROW + FOOT;
    attribute(this.canvas, "height", this.height);
    this.draw();
    this.tell();
  }

  count() {
    return this.shown.last - this.shown.first + 1;
  }

  step(index) {
    return this.shown.first + index;
  }

  again() {
    this.draw();
  }

  follow() {} // it leads

  x(step) {
    const { first, last } = this.shown;
    return 4 + ((step - first) / Math.max(1, last - first)) * (this.width - 8);
  }

  place(x) {
    const at = Math.round(((x - 4) / Math.max(1, this.width - 8)) * (this.count() - 1));
    return Math.min(this.count() - 1, Math.max(0, at));
  }

  words(index) {
    const { first, reward, bars, marks } = this.shown;
    const step = first + index;
    const value = reward.steps.length ? reward.values[nearest(reward.steps, step)] : null;
    const there = bars.filter((bar) => bar.from <= step && step <= bar.to).map((bar) => bar.name);
    const named = marks.filter((mark) => mark.step === step).map((mark) => t(`mark.${mark.kind}`));
    return [t("curve.readout", { step: GROUPED.format(step), value: short(value) }), ...named, ...there].join(", ");
  }

  // A click stays: all plots are read at that step, until the next one or Escape.
  point(index) {
    super.point(index);
    readAt(index === null ? null : this.shown.first + index, null);
  }

  pin(index) {
    const step = index === null ? null : this.shown.first + index;
    TOGETHER.step = TOGETHER.step === step ? null : step;
    readAt(TOGETHER.step, null);
    this.draw();
  }

  draw() {
    if (!this.width) return;
    this.start();
    const { bars, first, last, marks } = this.shown;
    const foot = this.height - FOOT;
    this.reward();
    for (const { step, kind } of marks) {
      const x = this.x(step);
      this.add("line", { x1: x, x2: x, y1: foot - 3, y2: foot + 3, class: `mark-${kind}` });
    }
    this.add("line", { x1: 4, x2: this.width - 4, y1: foot + 0.5, y2: foot + 0.5, class: "grid" });
    bars.forEach((bar, row) => this.bar(bar, TOP + HEIGHT + row * ROW));
    for (const step of ticks(first, last, this.width / 110).filter(Number.isInteger)) {
      const x = this.x(step);
      const anchor = x > this.width - 24 ? "end" : x < 24 ? "start" : "middle";
      this.add("text", { x, y: this.height - 5, class: "tick", "text-anchor": anchor }, GROUPED.format(step));
    }
    if (TOGETHER.range) {
      const [from, to] = TOGETHER.range.map((step) => Math.min(this.width - 4, Math.max(4, this.x(step))));
      for (const [left, right] of [[4, from], [to, this.width - 4]]) this.add("rect", { x: left, y: 0, width: Math.max(0, right - left), height: foot, class: "unseen-steps" });
    }
    if (TOGETHER.step !== null) this.add("line", { x1: this.x(TOGETHER.step), x2: this.x(TOGETHER.step), y1: 0, y2: foot, class: "pinned" });
    this.canvas.append(this.reader);
    this.mark();
  }

  reward() {
    const { steps, values } = this.shown.reward;
    const finite = values.filter(Number.isFinite);
    if (!finite.length) return;
    const [low, high] = finite.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
    const y = (value) => TOP + HEIGHT - 6 - ((value - low) / (high - low || 1)) * (HEIGHT - 12);
    let [d, open] = ["", false];
    for (const [i, value] of values.entries()) {
      if (Number.isFinite(value)) d += `${open ? "L" : "M"}${this.x(steps[i]).toFixed(1)} ${y(value).toFixed(1)}`;
      open = Number.isFinite(value);
    }
    this.add("path", { d, class: "line" });
  }

  // The name stands in the bar's row, on the side where there is room.
  bar({ from, to, severity, symptom, name }, y) {
    const [left, right] = [this.x(from), Math.max(this.x(to), this.x(from) + 4)];
    this.add("rect", { x: left, y: y + 2, width: right - left, height: ROW - 5, rx: 2, class: `bar-alert ${severity}${symptom ? " symptom" : ""}` });
    const room = name.length * 6 + 8;
    const [x, anchor] = left > room ? [left - 5, "end"] : right + room < this.width ? [right + 5, "start"] : [left + 5, "start"];
    this.add("text", { x, y: y + ROW - 4, class: `bar-name${x > left && x < right ? " inside" : ""}`, "text-anchor": anchor }, name);
  }

  mark() {
    if (!this.reader) return;
    if (this.index === null) this.reader.replaceChildren();
    else this.read(this.x(this.shown.first + this.index), 0, this.height - FOOT, this.words(this.index));
  }
}

function timeline(status) {
  const section = find("timeline");
  const reward = curveOf({ series: TIMELINE[0], labels: {} });
  const { step } = status.run;
  section.hidden = !step || (!reward.steps.length && !status.conditions.length);
  if (section.hidden) return;
  section.plot ||= makeTimeline();
  const first = Math.min(reward.steps[0] ?? step, ...status.conditions.map((each) => each.since));
  const bars = status.conditions.slice(0, ROWS).map((each) => ({
    from: Math.max(first, each.since), to: each.over ?? (each.standing === "over" ? each.step : step), severity: each.severity, symptom: each.symptom,
    name: harmless(each.subject ? `${each.alert}: ${each.subject}` : each.alert).slice(0, 60),
  }));
  section.plot.show({ first, last: Math.max(step, first), reward, bars, marks: MARKS.all.filter((mark) => mark.step >= first && mark.step <= step) });
}

function makeTimeline() {
  const plot = new Timeline();
  plot.root.addEventListener("click", () => {
    if (!plot.dragged) plot.pin(plot.index);
    plot.dragged = false;
  });
  plot.root.addEventListener("keydown", (event) => {
    if (event.key === "Enter") plot.pin(plot.index);
    if (event.key === "Escape") plot.pin(null);
  });
  find("timeline-plot").append(plot.root);
  return plot;
}
