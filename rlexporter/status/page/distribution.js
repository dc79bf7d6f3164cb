// A distribution over the steps as a heat map, and beside it that of the last steps, on the same axis. The axis is linear
// where most values lie and logarithmic far out, and buckets too narrow to be seen on it are drawn as one.
const FINEST = 1 / 24; // of the plot's height, as the next
const NARROW = 1 / 10; // what is narrower is as long as if it were this wide: else one fine bucket would flatten all others
const SHADES = 8;
const MARKED = [0.05, 0.5, 0.95];

class Distribution extends Plot {
  constructor(name) {
    super(t("distribution", { name }), 170, "large");
    this.shown = null;
    this.rows = [];
    this.columns = [];
    TOGETHER.plots.add(this);
  }

  show(shown, heat) {
    const print = JSON.stringify([shown.counts, shown.recent, heat?.steps.length, heat?.every, TOGETHER.range]);
    if (print === this.last) return;
    this.last = print;
    [this.shown, this.heat] = [shown, heat];
    this.rows = rows(shown);
    this.columns = heat ? columns(heat, this.rows) : [];
    if (this.index !== null && this.index >= this.columns.length) this.index = null;
    this.draw();
    this.tell();
  }

  again() {
    if (this.shown) this.show(this.shown, this.heat);
  }

  point(index) {
    super.point(index);
    readAt(index === null ? null : this.step(index), this);
  }

  steps() {
    return this.columns.map((each) => each.step);
  }

  words(index) {
    const { step, last, marks } = this.columns[index];
    const [low, middle, high] = marks.map(short);
    return t("distribution.readout", { steps: step === last ? GROUPED.format(step) : `${GROUPED.format(step)}–${GROUPED.format(last)}`, low, middle, high });
  }

  place(x) {
    return this.columns.length ? nearest(this.steps(), this.from + ((x - this.left) / Math.max(1, this.right - this.left)) * (this.to - this.from)) : null;
  }

  x(step) {
    return this.left + ((step - this.from) / Math.max(1, this.to - this.from)) * (this.right - this.left);
  }

  draw() {
    if (!this.width || !this.shown) return;
    this.start();
    if (!this.rows.length) {
      this.add("text", { x: this.width / 2, y: this.height / 2, class: "empty", "text-anchor": "middle" }, t("distribution.empty"));
      return;
    }
    [this.top, this.bottom] = [14, this.height - 18];
    this.y = (at) => this.bottom - at * (this.bottom - this.top);
    const named = this.edges();
    this.left = Math.max(...named.map(([, text]) => text.length), 1) * 6.2 + 8;
    this.right = Math.max(this.left + 40, this.width - Math.max(84, this.width * 0.24) - 10);
    for (const [y, text] of named) this.add("text", { x: this.left - 5, y: y + 3.5, class: "tick", "text-anchor": "end" }, text);
    this.heatMap();
    this.density();
    this.canvas.append(this.reader);
    this.mark();
  }

  // The edges that there is room for: open ends first, then short numbers, which are round ones.
  edges() {
    const ends = this.rows.flatMap((row) => (row.high === Infinity ? [[row.from, `> ${short(row.low)}`]] : row.low === -Infinity ? [[row.to, `≤ ${short(row.high)}`]] : []));
    const inner = this.rows.slice(0, -1).map((row) => [row.to, short(row.high)]).sort((a, b) => a[1].length - b[1].length);
    const taken = [];
    for (const [at, text] of [...ends, ...inner]) {
      const y = this.y(at);
      if (!taken.some(([other]) => Math.abs(other - y) < 12)) taken.push([y, text]);
    }
    return taken;
  }

  // Each column is 1 in all; the darker a bucket, the more of the column's values it holds.
  heatMap() {
    const { columns } = this;
    this.add("rect", { x: this.left, y: this.top, width: this.right - this.left, height: this.bottom - this.top, class: "ground" });
    if (!columns.length) return;
    [this.from, this.to] = [columns[0].step, columns[columns.length - 1].last + 1];
    const shades = Array(SHADES + 1).fill("");
    for (const { step, last, shares } of columns) {
      const [left, right] = [this.x(step), this.x(last + 1)];
      shares.forEach((share, row) => {
        if (!share) return;
        const { from, to } = this.rows[row];
        shades[Math.ceil(Math.sqrt(share) * SHADES - 1e-9)] += `M${left.toFixed(1)} ${this.y(to).toFixed(1)}H${right.toFixed(1)}V${this.y(from).toFixed(1)}H${left.toFixed(1)}z`;
      });
    }
    shades.forEach((d, shade) => d && this.add("path", { d, class: "heat", "fill-opacity": (shade / SHADES) ** 1.3 }));
    MARKED.forEach((share, i) => {
      const d = columns.map(({ step, last, at }, n) => `${n ? "L" : "M"}${((this.x(step) + this.x(last + 1)) / 2).toFixed(1)} ${this.y(at[i]).toFixed(1)}`).join("");
      this.add("path", { d: `${d}h0`, class: share === 0.5 ? "quantile middle" : "quantile" });
    });
    for (const step of ticks(this.from, this.to, (this.right - this.left) / 80).filter((each) => Number.isInteger(each) && each < this.to)) {
      const x = this.x(step);
      this.add("text", { x, y: this.height - 4, class: "tick", "text-anchor": x < this.left + 12 ? "start" : x > this.right - 12 ? "end" : "middle" }, GROUPED.format(step));
    }
  }

  // The last steps, as long as their density, with the marks of 5, 50 and 95 %.
  density() {
    const [left, right] = [this.right + 10, this.width - 2];
    const tall = (row) => (row.late || 0) / Math.max(row.to - row.from, NARROW);
    const peak = Math.max(1e-9, ...this.rows.map(tall));
    for (const row of this.rows) {
      if (row.late) this.add("rect", { x: left, y: this.y(row.to) + 0.5, width: Math.max(1, (tall(row) / peak) * (right - left)), height: Math.max(1, this.y(row.from) - this.y(row.to) - 1), class: "bar-recent" });
    }
    this.add("line", { x1: left - 0.5, x2: left - 0.5, y1: this.top, y2: this.bottom, class: "axis" });
    const marks = quantiles(this.shown, this.shown.recent || []);
    const taken = [];
    for (const i of marks ? [1, 2, 0] : []) {
      const y = this.y(height(this.rows, marks[i]));
      this.add("line", { x1: left, x2: right, y1: y, y2: y, class: i === 1 ? "quantile middle" : "quantile" });
      const text = Math.min(this.bottom - 2, Math.max(this.top + 8, y - 3));
      if (taken.some((each) => Math.abs(each - text) < 11)) continue;
      taken.push(text);
      this.add("text", { x: right, y: text, class: "quantile-text", "text-anchor": "end" }, `${MARKED[i] * 100} %: ${short(marks[i])}`);
    }
  }

  mark() {
    if (!this.reader) return;
    if (this.index === null || !this.columns.length) this.reader.replaceChildren();
    else this.read((this.x(this.step(this.index)) + this.x(this.columns[this.index].last + 1)) / 2, 0, this.bottom, this.words(this.index));
  }
}

// The buckets to draw: from the first that holds something to the last, with their places (0 to 1) and shares.
function rows({ edges, counts, recent }) {
  const bounds = [-Infinity, ...edges.map(numeric)];
  const used = counts.flatMap((each, i) => (each || recent?.[i] ? [i] : []));
  if (!used.length) return [];
  const [first, last] = [Math.max(0, used[0] - 1), Math.min(counts.length - 1, used[used.length - 1] + 1)];
  const at = axis(bounds, counts, first, last);
  const finest = (at(last + 1) - at(first)) * FINEST;
  const late = total(recent || []);
  const found = [];
  for (let i = first; i <= last; i += 1) {
    const row = { low: bounds[i], high: bounds[i + 1], from: at(i), to: at(i + 1), first: i, last: i, late: late ? recent[i] / late : 0 };
    const before = found[found.length - 1];
    const narrow = before && before.to - before.from < (row.to - row.from < finest * 0.999 ? finest * 0.999 : finest / 2);
    if (narrow && before.low !== -Infinity && row.high !== Infinity) {
      Object.assign(before, { high: row.high, to: row.to, last: i, late: before.late + row.late });
    } else found.push(row);
  }
  const [from, wide] = [found[0].from, found[found.length - 1].to - found[0].from];
  return found.map((row) => ({ ...row, from: (row.from - from) / wide, to: (row.to - from) / wide }));
}

// The columns of a heat map within the steps that are shown: the share of each row, and the marks with their heights.
function columns(heat, drawn) {
  const { every, steps, counts } = heat;
  const [from, to] = TOGETHER.range || [-Infinity, Infinity];
  return steps.flatMap((step, i) => {
    if (step + every - 1 < from || step > to) return [];
    const all = total(counts[i]);
    const marks = quantiles(heat, counts[i]);
    return [{ step: Math.max(1, step), last: step + every - 1, marks, at: marks.map((each) => height(drawn, each)),
      shares: drawn.map((row) => total(counts[i].slice(row.first, row.last + 1)) / all) }];
  });
}

// Where a value lies on the axis of the rows, from 0 to 1.
function height(drawn, value) {
  const row = drawn.find((each) => value <= each.high) || drawn[drawn.length - 1];
  if (!Number.isFinite(row.low)) return row.to;
  if (!Number.isFinite(row.high)) return row.from;
  return row.from + (row.to - row.from) * Math.min(1, Math.max(0, (value - row.low) / (row.high - row.low)));
}

// The values below which 5, 50 and 95 % lie, as `histogram_quantile` of Prometheus has them, but never beyond the smallest
// and the largest value that there was; null if there are none.
function quantiles({ edges, smallest, largest }, counts) {
  const all = total(counts);
  if (!all) return null;
  const bounds = edges.map(numeric);
  return MARKED.map((share) => {
    let left = share * all;
    const i = Math.max(0, counts.findIndex((each) => (left -= each) <= 0 && each));
    const high = bounds[i];
    const low = i ? bounds[i - 1] : Math.min(0, high);
    const found = high === Infinity ? low : low + (high - low) * (1 + left / counts[i]);
    return Math.min(numeric(largest) ?? Infinity, Math.max(numeric(smallest) ?? -Infinity, found));
  });
}

function total(counts) {
  return counts.reduce((sum, each) => sum + each, 0);
}

// The place of each edge. Edges that are all positive and far apart (lengths) are on a logarithmic axis; others on one
// that is linear near the median. An open end is as wide as the finest row.
function axis(bounds, counts, first, last) {
  const finite = bounds.slice(first, last + 2).filter(Number.isFinite);
  const logarithmic = finite[0] > 0 && finite[finite.length - 1] / finite[0] > 30;
  const [middle, reach] = logarithmic ? [0, 1] : bulk(bounds, counts);
  const place = (value) => (logarithmic ? Math.log(value) : Math.asinh((value - middle) / reach));
  const [low, high] = [place(finite[0]), place(finite[finite.length - 1])];
  const end = Math.max((high - low) * FINEST * 1.1, 1e-9);
  const lowest = bounds[1] > 0 && !logarithmic ? Math.min(low, place(0)) : low - end; // of what is never negative
  return (i) => (bounds[i] === -Infinity ? lowest : bounds[i] === Infinity ? high + end : place(bounds[i]));
}

// The median, and how far from it three quarters of the values lie, as exactly as the buckets tell.
function bulk(bounds, counts) {
  const centers = counts.map((_, i) => (bounds[i] === -Infinity ? bounds[i + 1] : bounds[i + 1] === Infinity ? bounds[i] : (bounds[i] + bounds[i + 1]) / 2));
  const middle = quantile(centers.map((value, i) => [value, counts[i]]), 0.5);
  const near = quantile(centers.map((value, i) => [Math.abs(value - middle), counts[i]]), 0.75);
  const widths = counts.map((_, i) => bounds[i + 1] - bounds[i]).filter((each) => each > 0 && Number.isFinite(each));
  return [middle, Math.max(near, Math.min(...widths), 1e-9)];
}

function quantile(weighted, share) {
  const sorted = weighted.sort(([a], [b]) => a - b);
  let left = total(sorted.map(([, weight]) => weight)) * share;
  for (const [value, weight] of sorted) {
    left -= weight;
    if (weight && left <= 0) return value;
  }
  return 0;
}
