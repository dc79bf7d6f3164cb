// Scales, ticks, and the place in a plot that pointer and keyboard read out.
const WIDTHS = new WeakMap();
const SIZES = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    if (WIDTHS.get(target).at !== Math.round(contentRect.width)) {
      WIDTHS.get(target).at = Math.round(contentRect.width);
      WIDTHS.get(target).plot.draw();
    }
  }
});

// Ticks at round numbers between two bounds, about as many as asked for.
function ticks(low, high, about) {
  const rough = (high - low) / Math.max(1, about);
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].find((each) => each * power >= rough * 0.999) * power;
  const found = [];
  for (let n = Math.ceil(low / unit - 1e-9); n * unit <= high + unit * 1e-9; n += 1) found.push(Number((n * unit).toPrecision(12)));
  return found;
}

function decades(low, high, about) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(2, about)));
  const found = [];
  for (let power = first; power <= last; power += every) found.push(10 ** power);
  return found;
}

// All plots are read at one step: that which is pointed at in one of them, or clicked on in the timeline. And they show the
// same steps: all of them (`range` is null), or those that were dragged over.
const TOGETHER = { plots: new Set(), step: null, range: null };

function connected() {
  for (const plot of TOGETHER.plots) if (!plot.root.isConnected) TOGETHER.plots.delete(plot);
  return TOGETHER.plots;
}

function readAt(step, leader) {
  for (const plot of connected()) if (plot !== leader) plot.follow(step ?? TOGETHER.step);
}

function zoom(from, to) {
  TOGETHER.range = from === null || to - from < 1 ? null : [from, to];
  for (const plot of connected()) plot.again();
  zoomed();
}

// A plot is a slider to keyboard and screen reader: its value is the place that is read out. What it shows is the
// business of those that extend it: `steps()`, `draw()`, `place(x)`, `x(step)` and `words(index)`; `again()` shows the same
// anew, when the steps that are shown are others.
class Plot {
  constructor(label, height, size) {
    this.height = height;
    this.label = label;
    this.canvas = svg("svg", { "aria-hidden": "true", height, class: "canvas" });
    this.root = el("div", { class: `plot ${size}`, role: "slider", tabindex: "0", "aria-label": label,
      "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0" }, this.canvas);
    this.index = null;
    this.last = null;
    this.began = null; // the step at which a mouse was pressed
    this.root.addEventListener("pointermove", (event) => this.move(event));
    this.root.addEventListener("pointerdown", (event) => this.press(event));
    this.root.addEventListener("pointerup", (event) => this.release(event));
    this.root.addEventListener("pointerleave", () => this.leave());
    this.root.addEventListener("dblclick", () => zoom(null));
    this.root.addEventListener("focus", () => this.root.matches(":focus-visible") && this.point(this.count() - 1));
    this.root.addEventListener("blur", () => this.point(null));
    this.root.addEventListener("keydown", (event) => this.key(event));
    WIDTHS.set(this.root, { plot: this, at: 0 });
    SIZES.observe(this.root);
  }

  get width() {
    return WIDTHS.get(this.root).at;
  }

  count() {
    return this.steps().length;
  }

  step(index) {
    return this.steps()[index];
  }

  // Show what another plot is read at; a screen reader hears that of its own.
  follow(step) {
    const steps = this.steps();
    const inside = step !== null && steps.length && step >= steps[0] && step <= steps[steps.length - 1];
    const index = inside ? nearest(steps, step) : null;
    if (index === this.index) return;
    this.index = index;
    this.mark();
  }

  press(event) {
    const index = this.place(event.offsetX);
    this.point(index);
    this.began = index !== null && event.pointerType === "mouse" && event.button === 0 ? { step: this.step(index), x: event.offsetX } : null;
  }

  move(event) {
    this.point(this.place(event.offsetX));
    if (!this.began || !this.reader || this.index === null) return;
    const [from, to] = [this.x(this.began.step), this.x(this.step(this.index))];
    this.reader.append(svg("rect", { x: Math.min(from, to), y: 0, width: Math.abs(to - from), height: this.height, class: "dragged" }));
  }

  release(event) {
    const began = this.began;
    this.began = null;
    if (!began || this.index === null || Math.abs(event.offsetX - began.x) < 6) return;
    const steps = [began.step, this.step(this.index)].sort((a, b) => a - b);
    this.dragged = true; // so that the click that follows is none
    zoom(...steps);
  }

  leave() {
    this.began = null;
    this.point(null);
  }

  // The half of the steps around that which is read, or twice as many.
  closer(factor) {
    const at = this.step(this.index ?? this.count() - 1);
    const [first, last] = TOGETHER.range || [this.step(0), this.step(this.count() - 1)];
    const half = Math.max(1, ((last - first) * factor) / 2);
    zoom(Math.round(at - half), Math.round(at + half));
  }

  key(event) {
    const count = this.count();
    if (count && (event.key === "+" || event.key === "-")) this.closer(event.key === "+" ? 0.5 : 2);
    if (event.key === "0") zoom(null);
    const at = this.index ?? count - 1;
    const far = Math.max(1, Math.round(count / 10));
    const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - far,
      PageUp: at + far, Home: 0, End: count - 1, Escape: null }[event.key];
    if (to === undefined || !count) return;
    event.preventDefault();
    this.point(to === null ? null : Math.min(count - 1, Math.max(0, to)));
  }

  point(index) {
    if (index === this.index) return;
    this.index = index;
    this.mark();
    this.tell();
  }

  // What a screen reader says of it: the place that is read out, or else the last one.
  tell() {
    const count = this.count();
    const at = this.index ?? count - 1;
    attribute(this.root, "aria-valuemax", Math.max(0, count - 1));
    attribute(this.root, "aria-valuenow", Math.max(0, at));
    attribute(this.root, "aria-valuetext", count ? this.words(at) : t("curve.empty"));
  }

  start() {
    attribute(this.canvas, "width", this.width);
    attribute(this.canvas, "viewBox", `0 0 ${this.width} ${this.height}`);
    this.canvas.replaceChildren();
    this.reader = svg("g", { class: "reader" });
  }

  add(tag, attributes, text) {
    const node = svg(tag, attributes);
    if (text !== undefined) node.textContent = text;
    this.canvas.append(node);
    return node;
  }

  // The line and the words at a place, kept inside the plot.
  read(x, top, bottom, words) {
    const text = svg("text", { y: top + 9, class: "readout" });
    text.textContent = words;
    this.reader.replaceChildren(svg("line", { x1: x, x2: x, y1: top, y2: bottom, class: "cross" }), text);
    const long = text.getComputedTextLength ? text.getComputedTextLength() : words.length * 6;
    const left = x + 6 + long > this.width - 2 ? x - 6 - long : x + 6;
    attribute(text, "x", Math.max(2, left));
  }
}
