// A distribution: bars for the last steps, an outline for the whole run; areas are shares. The axis is linear
// where most values lie and logarithmic far out, and buckets too narrow to be seen on it are drawn as one.
const FINEST = 1 / 20; // of the plot's width, as the next
const NARROW = 1 / 10; // what is narrower is as high as if it were this wide: else one fine bucket would flatten all others

class Histogram extends Plot {
  constructor(name) {
    super(t("histogram", { name }), 128, "large");
    this.shown = null;
    this.bars = [];
  }

  show(shown) {
    const print = JSON.stringify([shown.counts, shown.recent]);
    if (print === this.last) return;
    this.last = print;
    this.shown = shown;
    this.bars = bars(shown);
    if (this.index !== null && this.index >= this.bars.length) this.index = null;
    this.draw();
    this.tell();
  }

  count() {
    return this.bars.length;
  }

  words(index) {
    const { low, high, late, whole } = this.bars[index];
    const range = high === Infinity ? t("histogram.above", { low: short(low) })
      : low === -Infinity ? t("histogram.below", { high: short(high) })
        : t("histogram.between", { low: short(low), high: short(high) });
    return t("histogram.readout", { range, recent: percent(late), whole: percent(whole) });
  }

  x(at) {
    return 4 + at * (this.width - 8);
  }

  place(x) {
    const at = (x - 4) / Math.max(1, this.width - 8);
    const found = this.bars.findIndex((bar) => at < bar.to);
    return !this.bars.length ? null : found < 0 ? this.bars.length - 1 : found;
  }

  draw() {
    if (!this.width || !this.shown) return;
    this.start();
    if (!this.bars.length) {
      this.add("text", { x: this.width / 2, y: this.height / 2, class: "empty", "text-anchor": "middle" }, t("histogram.empty"));
      return;
    }
    const [top, bottom] = [14, this.height - 18];
    const tall = (share, bar) => share / Math.max(bar.to - bar.from, NARROW);
    const peak = Math.max(1e-9, ...this.bars.flatMap((bar) => [tall(bar.late, bar), tall(bar.whole, bar)]));
    const y = (share, bar) => bottom - (tall(share, bar) / peak) * (bottom - top);
    let d = `M${this.x(0)} ${bottom}`;
    for (const bar of this.bars) {
      const [left, right] = [this.x(bar.from), this.x(bar.to)];
      if (bar.late) this.add("rect", { x: left + 0.5, y: Math.min(y(bar.late, bar), bottom - 1), width: Math.max(1, right - left - 1), height: Math.max(1, bottom - y(bar.late, bar)), class: "bar-recent" });
      d += `V${y(bar.whole, bar).toFixed(1)}H${right.toFixed(1)}`;
    }
    this.add("path", { d: `${d}V${bottom}`, class: "bar-whole" });
    this.add("line", { x1: 4, x2: this.width - 4, y1: bottom + 0.5, y2: bottom + 0.5, class: "axis" });
    this.labels(bottom);
    this.canvas.append(this.reader);
    this.ends = [top, bottom];
    this.mark();
  }

  // Open ends are named always, then the edges of the bucket that holds most, then others where there is room.
  labels(bottom) {
    const open = (bar) => (bar.high === Infinity ? [`> ${short(bar.low)}`] : bar.low === -Infinity ? [`≤ ${short(bar.high)}`] : []);
    const named = this.bars.flatMap((bar) => open(bar).map((text) => [this.x((bar.from + bar.to) / 2), text, false]));
    const most = this.bars.reduce((best, bar, i) => (bar.whole > this.bars[best].whole ? i : best), 0);
    const edges = this.bars.slice(0, -1).map((bar, i) => [this.x(bar.to), short(bar.high), true, i === most || i === most - 1 ? 0 : short(bar.high).length]);
    const taken = [];
    for (const [at, text, tick] of [...named, ...edges.sort((a, b) => a[3] - b[3])]) {
      const half = text.length * 3.1 + 4;
      if (tick) this.add("line", { x1: at, x2: at, y1: bottom, y2: bottom + 3, class: "axis" });
      if (taken.some(([left, right]) => at + half > left && at - half < right)) continue;
      if (tick && (at - half < -6 || at + half > this.width + 6)) continue;
      taken.push([at - half, at + half]);
      const anchor = at - half < 0 ? "start" : at + half > this.width ? "end" : "middle";
      this.add("text", { x: anchor === "start" ? 0 : anchor === "end" ? this.width : at, y: this.height - 4, class: "tick", "text-anchor": anchor }, text);
    }
  }

  mark() {
    if (!this.reader || !this.ends) return;
    if (this.index === null || !this.bars.length) this.reader.replaceChildren();
    else this.read(this.x((this.bars[this.index].from + this.bars[this.index].to) / 2), 0, this.ends[1], this.words(this.index));
  }
}

// The bars to draw: from the first bucket that holds something to the last, with their places (0 to 1) and shares.
function bars({ edges, counts, recent }) {
  const bounds = [-Infinity, ...edges.map(numeric)];
  const used = counts.flatMap((each, i) => (each || recent?.[i] ? [i] : []));
  if (!used.length) return [];
  const [first, last] = [Math.max(0, used[0] - 1), Math.min(counts.length - 1, used[used.length - 1] + 1)];
  const at = axis(bounds, counts, first, last);
  const finest = (at(last + 1) - at(first)) * FINEST;
  const [whole, late] = [total(counts), total(recent || [])];
  const found = [];
  for (let i = first; i <= last; i += 1) {
    const bar = { low: bounds[i], high: bounds[i + 1], from: at(i), to: at(i + 1), whole: whole ? counts[i] / whole : 0, late: late ? recent[i] / late : 0 };
    const before = found[found.length - 1];
    const narrow = before && before.to - before.from < (bar.to - bar.from < finest * 0.999 ? finest * 0.999 : finest / 2);
    if (narrow && before.low !== -Infinity && bar.high !== Infinity) {
      Object.assign(before, { high: bar.high, to: bar.to, whole: before.whole + bar.whole, late: before.late + bar.late });
    } else found.push(bar);
  }
  const [from, wide] = [found[0].from, found[found.length - 1].to - found[0].from];
  return found.map((bar) => ({ ...bar, from: (bar.from - from) / wide, to: (bar.to - from) / wide }));
}

function total(counts) {
  return counts.reduce((sum, each) => sum + each, 0);
}

// The place of each edge. Edges that are all positive and far apart (lengths) are on a logarithmic axis; others on one
// that is linear near the median. An open end is as wide as the finest bar.
function axis(bounds, counts, first, last) {
  const finite = bounds.slice(first, last + 2).filter(Number.isFinite);
  const logarithmic = bounds[1] > 0 && bounds.slice(2, -1).every((bound, i) => bound / bounds[i + 1] > 1.5);
  const [middle, reach] = logarithmic ? [0, 1] : bulk(bounds, counts);
  const place = (value) => (logarithmic ? Math.log(value) : Math.asinh((value - middle) / reach));
  const [low, high] = [place(finite[0]), place(finite[finite.length - 1])];
  const end = Math.max((high - low) * FINEST * 1.1, 1e-9);
  const lowest = bounds[1] > 0 && !logarithmic ? Math.min(low, place(0)) : low - end; // of what is never negative
  return (i) => (bounds[i] === -Infinity ? lowest : bounds[i] === Infinity ? high + end : place(bounds[i]));
}

// The median, and how far from it three quarters of the values lie, as exactly as the buckets tell.
function bulk(bounds, counts) {
  const centres = counts.map((_, i) => (bounds[i] === -Infinity ? bounds[i + 1] : bounds[i + 1] === Infinity ? bounds[i] : (bounds[i] + bounds[i + 1]) / 2));
  const middle = quantile(centres.map((value, i) => [value, counts[i]]), 0.5);
  const near = quantile(centres.map((value, i) => [Math.abs(value - middle), counts[i]]), 0.75);
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
