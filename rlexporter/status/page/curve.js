// A curve over the steps. Where a value is not finite the line breaks, and the step is marked.
const RUNNING = 60; // values from which on a running mean is drawn through them
const MARGIN = { top: 12, right: 6, bottom: 18, left: 8 };

// All curves are read at one step: that which is pointed at in one of them, or clicked on in the timeline.
const TOGETHER = { curves: new Set(), step: null };

function readAt(step, leader) {
  for (const curve of TOGETHER.curves) {
    if (!curve.root.isConnected) TOGETHER.curves.delete(curve);
    else if (curve !== leader) curve.follow(step ?? TOGETHER.step);
  }
}

class Curve extends Plot {
  constructor(name, { height = 132, size = "large" } = {}) {
    super(t("curve", { name }), height, size);
    this.axes = size !== "small";
    this.shown = { steps: [], values: [], limits: [], events: [] };
    TOGETHER.curves.add(this);
  }

  point(index) {
    super.point(index);
    readAt(index === null ? null : this.shown.steps[index], this);
  }

  // Show what another curve is read at; a screen reader hears that of its own.
  follow(step) {
    const { steps } = this.shown;
    const inside = step !== null && steps.length && step >= steps[0] && step <= steps[steps.length - 1];
    const index = inside ? nearest(steps, step) : null;
    if (index === this.index) return;
    this.index = index;
    this.mark();
  }

  show(shown) {
    const { steps, values, limits, events } = shown;
    const print = [steps.length, steps[0], steps[steps.length - 1], values[values.length - 1], JSON.stringify([limits, events, shown.since])].join();
    if (print === this.last) return;
    this.last = print;
    this.shown = shown;
    if (this.index !== null && this.index >= steps.length) this.index = null;
    this.draw();
    this.tell();
  }

  count() {
    return this.shown.steps.length;
  }

  words(index) {
    return t("curve.readout", { step: this.shown.steps[index], value: short(this.shown.values[index]) });
  }

  place(x) {
    const { steps } = this.shown;
    if (!steps.length || !this.x) return null;
    return nearest(steps, this.first + ((x - this.left) / Math.max(1, this.right - this.left)) * (this.end - this.first));
  }

  // Bounds of the values, and of those limits that lie near enough not to flatten the curve.
  range() {
    const { values, limits } = this.shown;
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
    if (low > high) [low, high] = [0, 1];
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
    [this.first, this.end] = [steps[0], steps[steps.length - 1]];
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
    this.holes();
    this.lines();
    this.limits();
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

  lines() {
    const { values, since } = this.shown;
    const smooth = values.length >= RUNNING && (since ?? null) === null ? running(values) : null; // a mean would hide what is told
    this.add("path", { d: this.path(values), class: smooth ? "line raw" : "line" });
    if (smooth) this.add("path", { d: this.path(smooth), class: "line" });
  }

  // At most a few points a pixel: of each column the first, the lowest, the highest and the last.
  path(values) {
    const { steps } = this.shown;
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
    for (const { value, severity } of limits) {
      const inside = this.inside(value);
      const y = inside ? this.y(value) : this.over(value) ? this.top - 1 : this.bottom - 1;
      if (inside) this.add("line", { x1: this.left, x2: this.right, y1: y, y2: y, class: `limit ${severity || ""}` });
      const text = y < this.top + 8 && inside ? y + 10 : y - 3;
      if (!this.axes || taken.some((each) => Math.abs(each - text) < 11)) continue;
      taken.push(text);
      const words = inside ? `${t("limit")} ${short(value)}` : t(this.over(value) ? "limit.above" : "limit.below", { value: short(value) });
      this.add("text", { x: this.right, y: text, class: `limit-text ${severity || ""}`, "text-anchor": "end" }, words);
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
  const [sums, counts] = [[0], [0]];
  for (const value of values) {
    const counted = Number.isFinite(value);
    sums.push(sums[sums.length - 1] + (counted ? value : 0));
    counts.push(counts[counts.length - 1] + (counted ? 1 : 0));
  }
  return values.map((value, i) => {
    const [from, to] = [Math.max(0, i - half), Math.min(values.length, i + half + 1)];
    return Number.isFinite(value) ? (sums[to] - sums[from]) / (counts[to] - counts[from]) : NaN;
  });
}
