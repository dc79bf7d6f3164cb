// Elements: made once, then changed in place, so that focus and hover survive a new answer. Text is text, never HTML.
const SVG = "http://www.w3.org/2000/svg";
const find = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Marks that turn the direction of text around, and other controls, would reach beyond the name that holds them.
function harmless(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, " ");
}

function say(node, words, title) {
  const text = harmless(words);
  if (node.textContent !== text) node.textContent = text;
  if (title !== undefined) attribute(node, "title", title && harmless(title));
}

// A text of the catalog: what stands in backticks is code, marks of its sources are left out.
function prose(node, text) {
  if (node.dataset.text === text) return;
  node.dataset.text = text;
  const parts = harmless(text).replace(/ ?\[[a-z0-9]+\]/g, "").split("`");
  node.replaceChildren(...parts.map((part, i) => (i % 2 ? el("code", {}, part) : part)));
}

function attribute(node, name, value) {
  if (value === null || value === undefined || value === "") node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// One child of `parent` for each item, in their order: `make(item)` builds it, `update(child, item)` fills it.
const KEPT = new WeakMap();

function sync(parent, items, key, make, update) {
  const before = KEPT.get(parent) || new Map();
  const wanted = new Map();
  for (const item of items) {
    let id = key(item);
    while (wanted.has(id)) id += "+";
    wanted.set(id, item);
  }
  for (const [id, child] of before) if (!wanted.has(id)) child.remove();
  const now = new Map();
  for (const [id, item] of wanted) {
    const child = before.get(id) || make(item);
    const place = parent.children[now.size];
    if (place !== child) parent.insertBefore(child, place || null);
    now.set(id, child);
    update(child, item);
  }
  KEPT.set(parent, now);
}

// Addresses come from the catalog; whatever else comes is no link.
function address(text) {
  return /^(https?:\/\/|\/(?!\/))/.test(text || "") ? text.replace(/^\//, "") : "";
}

function link(href, words) {
  const [to, text] = [address(href), harmless(words)];
  if (!to) return el("span", {}, text);
  return el("a", /^http/.test(to) ? { href: to, rel: "noreferrer", target: "_blank" } : { href: to }, text);
}

// Color is never alone: each word has a shape of its own, a disc, a triangle, an octagon, a ring.
const SHAPES = {
  fine: ["M12 1a11 11 0 1 1 0 22a11 11 0 0 1 0-22z", "M6.5 12.5l3.7 3.7l7.3-8"],
  look: ["M12 1.5L23.5 22.5H.5z", "M12 9v6.2M12 18.4v.9"],
  act: ["M7.4 1h9.2L23 7.4v9.2L16.6 23H7.4L1 16.6V7.4z", "M12 6v7.4M12 16.8v1"],
  unknown: ["M12 1a11 11 0 1 1 0 22a11 11 0 0 1 0-22z", "M7.5 12h9"],
};

function icon(word) {
  const [shape, mark] = SHAPES[word] || SHAPES.unknown;
  return svg("svg", { viewBox: "0 0 24 24", class: `icon ${word in SHAPES ? word : "unknown"}`, "aria-hidden": "true" },
    svg("path", { d: shape, class: "shape" }), svg("path", { d: mark, class: "mark" }));
}

// The icon inside `node`, made anew only when the word changes.
function show(node, word) {
  if (node.dataset.word === word) return;
  node.dataset.word = word;
  node.replaceChildren(icon(word));
}
