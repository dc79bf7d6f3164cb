// Numbers and times as people read them; the full number is in the title. Numbers look as they do in a log, in each
// language: 1.000 is one, not a thousand, as limits in texts have it.
const NOT_FINITE = { NaN: NaN, "+Inf": Infinity, "-Inf": -Infinity };
const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SIGNIFICANT = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const PERCENT = new Intl.NumberFormat("en", { style: "percent", maximumSignificantDigits: 3 });

// A number of the document, where those that are not finite are words; null stays null.
function numeric(value) {
  return typeof value === "string" ? (NOT_FINITE[value] ?? NaN) : value ?? null;
}

function short(value) {
  const number = numeric(value);
  if (number === null) return "–";
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return number > 0 ? "+Inf" : "−Inf";
  const size = Math.abs(number);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return scientific(number);
  return (size >= 1e4 || Number.isInteger(number) ? GROUPED : SIGNIFICANT).format(number).replace("-", "−");
}

function scientific(number) {
  const [digits, power] = number.toExponential(2).split("e");
  return `${digits.replace(/\.?0+$/, "")}e${power.replace("+", "")}`.replaceAll("-", "−");
}

// The unit that follows a number; a share and a reward have none.
function unitOf(unit, value) {
  return !unit || unit === "fraction" || unit === "reward" ? "" : t(unit, { count: numeric(value) });
}

function full(value) {
  return value === null || value === undefined ? t("none") : String(value);
}

function number(node, value) {
  say(node, short(value), full(value));
  node.classList.toggle("bad", typeof value === "string");
  node.classList.toggle("absent", value === null || value === undefined);
}

function percent(share) {
  return PERCENT.format(share);
}

function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return t("seconds.short", { s: SIGNIFICANT.format(Math.round(s * 10) / 10) });
  if (s < 99.5) return t("seconds.short", { s: Math.round(s) });
  const m = Math.floor(s / 60);
  if (m < 60) return t("minutes", { m, s: Math.floor(s % 60) });
  const h = Math.floor(m / 60);
  return h < 48 ? t("hours", { h, m: m % 60 }) : t("days", { d: Math.floor(h / 24), h: h % 24 });
}

// A time of day, with the date where that is not today's.
function clock(seconds, dated = false) {
  const then = new Date(seconds * 1000);
  const today = !dated && then.toDateString() === new Date().toDateString();
  const time = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  return then.toLocaleString(LANGUAGE, today ? time : { ...time, year: "numeric", month: "short", day: "numeric" });
}

function labelled(labels) {
  return Object.entries(labels || {}).map(([name, value]) => `${name}="${value}"`).join(", ");
}

function idOf({ series, name, labels }) {
  return `${series ?? name}{${labelled(labels)}}`;
}

// What a series is called here (`words`: what the document calls it), and what its labels say where it has some.
function called({ series, name, labels }, words) {
  const id = series ?? name;
  const plain = words || id.replace(/^rl_/, "").replace(/_dist$|_total$/, "").replaceAll("_", " ").replace(/\bkl\b/, "KL");
  const text = known(`name.${id}`) ? t(`name.${id}`) : plain[0].toUpperCase() + plain.slice(1);
  const values = id === "rl_signal" && words ? [] : Object.values(labels || {}).filter(Boolean);
  return harmless(values.length ? `${text}, ${values.join(", ")}` : text);
}
