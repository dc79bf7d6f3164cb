// A curve over the steps. Where a value is not finite the line breaks, and the step is marked.
const RUNNING = 60; // values from which on a running mean is drawn through them
const WIDE = 6; // a band that is so many times higher than the curve would flatten it
const MARGIN = { top: 12, right: 6, bottom: 18, left: 8 };

class Curve extends Plot {
  constructor(name, { height = 132, size = "large" } = {}) {
    super(t("curve", { name }), height, size);
    this.axes = size !== "small";
    this.given = this.shown = { steps: [], values: [], limits: [], events: [], earlier: NOTHING };
    TOGETHER.plots.add(this);
  }

  point(index) {
    super.point(index);
    readAt(index === null ? null : this.shown.steps[index], this);
  }

  // What is drawn: `steps` and `values`; `limits`, of which each may have `words`; `events`, the steps of alerts; `since`, from
  // which step on it is wrong; `band`, the lower and the upper edge of most values; `others`, further lines with names; `earlier`, the same of an earlier run.
  show(shown) {
    const { steps, values } = shown;
    const print = JSON.stringify([steps.length, steps[0], steps[steps.length - 1], values[values.length - 1], shown.limits, shown.events,
      shown.since, shown.band?.steps.length, shown.others?.map((each) => each.steps.length), shown.earlier?.steps.length, TOGETHER.range]);
    if (print === this.last) return;
    this.last = print;
    this.given = shown;
    const mine = seen(shown);
    this.shown = { ...shown, ...mine, band: shown.band && seen(shown.band), others: (shown.others || []).map((each) => ({ ...each, ...seen(each) })), earlier: between(shown.earlier || NOTHING, mine.steps) };
    if (this.index !== null && this.index >= this.count()) this.index = null;
    this.draw();
    this.tell();
  }

  again() {
    this.show(this.given);
  }

  steps() {
    return this.shown.steps;
  }

  words(index) {
    const { steps, values, earlier } = this.shown;
    const [first, last] = [earlier.steps[0], earlier.steps[earlier.steps.length - 1]];
    const beside = steps[index] >= first && steps[index] <= last;
    return t(beside ? "curve.readout.earlier" : "curve.readout", { step: steps[index], value: short(values[index]), earlier: beside && short(earlier.values[nearest(earlier.steps, steps[index])]) });
  }

  place(x) {
    const { steps } = this.shown;
    if (!steps.length || !this.x) return null;
    return nearest(steps, this.first + ((x - this.left) / Math.max(1, this.right - this.left)) * (this.end - this.first));
  }

  // Bounds of the values, and of those limits that lie near enough not to flatten the curve.
  range() {
    const { values, limits, band, earlier, others = [] } = this.shown;
    let [low, high] = [Infinity, -Infinity];
    const reach = (all) => {
      for (const value of all) if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
    };
    for (const all of [values, ...others.map((each) => each.values)]) reach(all);
    if (low > high) [low, high] = [0, 1];
    const far = WIDE * Math.max(high - low, Math.abs(high) * 0.02);
    reach(earlier.values.filter((value) => value > low - far && value < high + far));
    this.band = band?.steps.length && Math.max(...band.values) - Math.min(...band.low) < WIDE * (high - low) ? band : null;
    if (this.band) reach([...band.low, ...band.values]);
    this.log = low > 0 && high / low > 1000;
    if (this.log) return [low, high];
    const span = Math.max(high - low, Math.abs(high) * 0.02, 1e-12);
    for (const { value } of limits) {
      if (value > high && value - high < 1.5 * span) high = value;
      if (value < low && low - value < 1.5 * span) low = value;
    }
    if (low > 0 && low < high * 0.5) low = 0;
    if (high === low) return low === 0 ? [0, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
    return [low - (low === 0 ? 0 : (high - low) * 0.04), high + (high - low) * 0.04];
  }

  scale() {
    const { steps } = this.shown;
    const [low, high] = this.range();
    [this.first, this.end] = [steps[0], Math.max(steps[steps.length - 1], TOGETHER.range ? 0 : this.shown.since ?? 0)];
    this.top = this.axes ? MARGIN.top : 4;
    this.bottom = this.height - (this.axes ? MARGIN.bottom : 4);
    this.marks = this.log ? decades(low, high, 3) : ticks(low, high, this.axes ? 3 : 1);
    const wide = this.axes ? Math.max(...this.marks.map((each) => short(each).length)) * 6.2 + 6 : 0;
    [this.left, this.right] = [Math.max(MARGIN.left, wide), this.width - MARGIN.right];
    const [from, to] = this.log ? [Math.log10(low), Math.log10(high)] : [low, high];
    const wideness = Math.max(1e-9, this.end - this.first);
    this.x = (step) => (this.end > this.first ? this.left + ((step - this.first) / wideness) * (this.right - this.left) : (this.left + this.right) / 2);
    this.y = (value) => this.bottom - (((this.log ? Math.log10(value) : value) - from) / (to - from)) * (this.bottom - this.top);
    this.inside = (value) => value >= low && value <= high;
    this.over = (value) => value > high;
  }

  draw() {
    if (!this.width) return;
    this.start();
    if (!this.count()) {
      this.add("text", { x: this.width / 2, y: this.height / 2 + 4, class: "empty", "text-anchor": "middle" }, t("curve.empty"));
      return;
    }
    this.scale();
    if (this.axes) this.grid();
    else this.add("line", { x1: this.left, x2: this.right, y1: this.bottom + 0.5, y2: this.bottom + 0.5, class: "grid" });
    this.zones();
    this.bands();
    this.holes();
    this.lines();
    this.limits();
    this.names();
    this.beginning();
    this.canvas.append(this.reader);
    this.mark();
  }

  grid() {
    for (const value of this.marks) {
      const y = Math.round(this.y(value)) + 0.5;
      this.add("line", { x1: this.left, x2: this.right, y1: y, y2: y, class: "grid" });
      this.add("text", { x: this.left - 5, y: y + 3.5, class: "tick", "text-anchor": "end" }, short(value));
    }
    const steps = this.end > this.first ? ticks(this.first, this.end, this.width / 90).filter(Number.isInteger) : [this.first];
    for (const step of steps) {
      const [x, close] = [this.x(step), 12];
      const anchor = x > this.right - close ? "end" : x < this.left + close ? "start" : "middle";
      this.add("text", { x, y: this.height - 4, class: "tick", "text-anchor": anchor }, GROUPED.format(step));
    }
    if (this.log) this.add("text", { x: this.left + 3, y: this.top - 3, class: "tick" }, t("curve.log"));
  }

  // Steps whose value is not finite: a band with a bar at its top.
  holes() {
    const { steps, values } = this.shown;
    for (let from = 0; from < steps.length; from += 1) {
      if (Number.isFinite(values[from])) continue;
      let to = from;
      while (to + 1 < steps.length && !Number.isFinite(values[to + 1])) to += 1;
      const left = Math.min(this.x(steps[from]) - 1, this.right - 4);
      const width = Math.max(this.axes ? 3 : 5, this.x(steps[to]) - left + 1);
      this.add("rect", { x: left, y: this.top, width, height: this.bottom - this.top, class: "hole" });
      this.add("rect", { x: left, y: this.top, width, height: 3, class: "hole-mark" });
      if (this.axes) this.name(left, width, short(values[from]));
      from = to;
    }
  }

  // What the values of a band are: in it, or beside it where it is narrow.
  name(left, width, words) {
    const [y, room] = [(this.top + this.bottom) / 2 + 4, words.length * 8 + 6];
    if (width >= room) this.add("text", { x: left + width / 2, y, class: "hole-text", "text-anchor": "middle" }, words);
    else if (left - room > this.left) this.add("text", { x: left - 4, y, class: "hole-text", "text-anchor": "end" }, words);
    else this.add("text", { x: left + width + 4, y, class: "hole-text" }, words);
  }

  // Beyond a limit.
  zones() {
    for (const { value, below, severity } of this.axes ? this.shown.limits : []) {
      if (severity === "info" || !this.inside(value)) continue;
      const [from, to] = below ? [this.y(value), this.bottom] : [this.top, this.y(value)];
      this.add("rect", { x: this.left, y: from, width: this.right - this.left, height: Math.max(0, to - from), class: `zone ${severity || ""}` });
    }
  }

  bands() {
    if (!this.band) return;
    const { steps, values, low } = this.band;
    const at = (all) => (step, i) => `${this.x(step).toFixed(1)} ${this.y(all[i]).toFixed(1)}`;
    this.add("path", { d: `M${[...steps.map(at(values)), ...steps.map(at(low)).reverse()].join("L")}z`, class: "band" });
  }

  lines() {
    const { steps, values, since, earlier, others = [] } = this.shown;
    const smooth = values.length >= RUNNING && (since ?? null) === null ? running(values) : null; // a mean would hide what is told
    const gray = smooth ? running(earlier.values) : earlier.values;
    if (gray.length) this.add("path", { d: this.path(earlier.steps, gray.map((value) => (this.inside(value) ? value : NaN))), class: "line earlier" });
    others.forEach((each, i) => this.add("path", { d: this.path(each.steps, running(each.values)), class: `line other o${i}` }));
    this.add("path", { d: this.path(steps, values), class: smooth ? "line raw" : "line" });
    if (smooth) this.add("path", { d: this.path(steps, smooth), class: "line" });
  }

  // Of the further lines: at their ends, above each other where these are close.
  names() {
    let lowest = this.bottom;
    const ends = (this.shown.others || []).flatMap(({ name, values }, i) => (Number.isFinite(values[values.length - 1]) ? [[this.y(values[values.length - 1]) - 4, name, i]] : []));
    for (const [y, name, i] of ends.sort((a, b) => b[0] - a[0])) {
      lowest = Math.min(y, lowest - 11);
      this.add("text", { x: this.right, y: lowest, class: `other-name o${i}`, "text-anchor": "end" }, harmless(name).slice(0, 40));
    }
  }

  // At most a few points a pixel: of each column the first, the lowest, the highest and the last.
  path(steps, values) {
    let d = "";
    let open = false;
    let column = [];
    const flush = () => {
      const ends = column.length > 4 ? outline(column) : column;
      for (const [x, y] of ends) {
        d += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
        open = true;
      }
      column = [];
    };
    for (let i = 0; i < steps.length; i += 1) {
      if (!Number.isFinite(values[i])) {
        flush();
        if (open) d += "h0";
        open = false;
        continue;
      }
      const point = [this.x(steps[i]), this.y(values[i])];
      if (column.length && Math.floor(point[0]) !== Math.floor(column[0][0])) flush();
      column.push(point);
    }
    flush();
    return open ? `${d}h0` : d;
  }

  limits() {
    const { limits, events } = this.shown;
    const taken = [];
    for (const { value, severity, below, words } of limits) {
      const inside = this.inside(value);
      const y = inside ? this.y(value) : this.over(value) ? this.top - 1 : this.bottom - 1;
      if (inside) this.add("line", { x1: this.left, x2: this.right, y1: y, y2: y, class: `limit ${severity || ""}` });
      const text = below && inside ? Math.min(y + 10, this.bottom - 2) : y < this.top + 8 && inside ? y + 10 : y - 3;
      if (!this.axes || taken.some((each) => Math.abs(each - text) < 11)) continue;
      taken.push(text);
      const said = words || `${t("limit")} ${short(value)}`;
      this.add("text", { x: this.right, y: text, class: `limit-text ${severity || ""}`, "text-anchor": "end" }, inside ? said : `${said} ${this.over(value) ? "↑" : "↓"}`);
    }
    for (const { step, severity } of this.axes ? events : []) {
      if (step < this.first || step > this.end) continue;
      const x = this.x(step);
      this.add("path", { d: `M${x - 4} ${this.bottom + 6}h8l-4 -6z`, class: `event ${severity}` });
    }
  }

  // The step since which something is wrong, and all after it.
  beginning() {
    const { since } = this.shown;
    if ((since ?? null) === null || since < this.first || since > this.end) return;
    const x = this.x(since);
    this.add("rect", { x, y: this.top, width: Math.max(1, this.right - x), height: this.bottom - this.top, class: "since-zone" });
    this.add("line", { x1: x, x2: x, y1: this.top, y2: this.bottom, class: "since" });
    const left = x > (this.left + this.right) / 2;
    this.add("text", { x: x + (left ? -5 : 5), y: this.bottom - 6, class: "since-text", "text-anchor": left ? "end" : "start" }, t("since", { step: GROUPED.format(since) }));
  }

  mark() {
    if (!this.reader) return;
    if (this.index === null || !this.count()) {
      this.reader.replaceChildren();
      return;
    }
    const value = this.shown.values[this.index];
    const x = this.x(this.shown.steps[this.index]);
    this.read(x, this.axes ? 0 : -1, this.bottom, this.words(this.index));
    if (Number.isFinite(value)) this.reader.append(svg("circle", { cx: x, cy: this.y(value), r: 3, class: "point" }));
  }
}

// What of a curve is in the steps that are shown.
function seen({ steps, values, low }) {
  if (!TOGETHER.range || !steps.length) return low ? { steps, values, low } : { steps, values };
  const [from, to] = TOGETHER.range.map((step) => nearest(steps, step));
  const cut = (all) => all.slice(from, to + 1);
  return low ? { steps: cut(steps), values: cut(values), low: cut(low) } : { steps: cut(steps), values: cut(values) };
}

// What of a curve lies between the first and the last of the steps.
function between({ steps, values }, [first, ...more]) {
  const last = more.length ? more[more.length - 1] : first;
  const inside = (_, i) => steps[i] >= first && steps[i] <= last;
  return { steps: steps.filter(inside), values: values.filter(inside) };
}

// The place of the step that is nearest to the wanted one.
function nearest(steps, wanted) {
  let [low, high] = [0, steps.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - steps[low - 1] < steps[low] - wanted ? low - 1 : low;
}

function outline(points) {
  let [low, high] = [points[0], points[0]];
  for (const point of points) {
    if (point[1] < low[1]) low = point;
    if (point[1] > high[1]) high = point;
  }
  return [points[0], ...(points.indexOf(low) < points.indexOf(high) ? [low, high] : [high, low]), points[points.length - 1]];
}

// The mean of the values around each; what is not finite breaks it as it breaks the curve.
function running(values) {
  const half = Math.max(2, Math.round(values.length / 60));
  return values.map((value, i) => {
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter(Number.isFinite);
    return Number.isFinite(value) ? near.reduce((sum, each) => sum + each) / near.length : NaN;
  });
}
