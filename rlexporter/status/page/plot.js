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

// A plot is a slider to keyboard and screen reader: its value is the place that is read out. What it shows is the
// business of `Curve` and `Histogram`: `count()`, `draw()`, `place(x)` and `words(index)`.
class Plot {
  constructor(label, height, size) {
    this.height = height;
    this.label = label;
    this.canvas = svg("svg", { "aria-hidden": "true", height, class: "canvas" });
    this.root = el("div", { class: `plot ${size}`, role: "slider", tabindex: "0", "aria-label": label,
      "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0" }, this.canvas);
    this.index = null;
    this.last = null;
    this.root.addEventListener("pointermove", (event) => this.point(this.place(event.offsetX)));
    this.root.addEventListener("pointerdown", (event) => this.point(this.place(event.offsetX)));
    this.root.addEventListener("pointerleave", () => this.point(null));
    this.root.addEventListener("focus", () => this.root.matches(":focus-visible") && this.point(this.count() - 1));
    this.root.addEventListener("blur", () => this.point(null));
    this.root.addEventListener("keydown", (event) => this.key(event));
    WIDTHS.set(this.root, { plot: this, at: 0 });
    SIZES.observe(this.root);
  }

  get width() {
    return WIDTHS.get(this.root).at;
  }

  key(event) {
    const count = this.count();
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
