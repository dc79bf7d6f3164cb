// Some completions of the newest rollout, if whoever started the run has asked for them.
const TEXTS = { asked: true, found: null };

async function askCompletions() {
  if (!TEXTS.asked) return;
  TEXTS.found = await get("api/completions");
  TEXTS.asked = TEXTS.found.most > 0;
}

function completions() {
  const { found } = TEXTS;
  const kinds = ["best", "worst", "last"].filter((kind) => found?.[kind].length);
  find("completions").hidden = !kinds.length;
  if (!kinds.length) return;
  say(find("completions-title"), t("completions", { step: GROUPED.format(found.step) }));
  sync(find("completions-list"), kinds, (kind) => kind, (kind) => el("div", {}, el("h3", {}, t(`completions.${kind}`)), el("ol")), (node, kind) => {
    const held = found[kind].map((each) => ({ ...each, id: JSON.stringify(each) })); // another text is another entry
    sync(node.children[1], held, (each) => each.id, makeCompletion, () => {});
  });
}

function makeCompletion({ prompt, completion, reward, rewards }) {
  const functions = Object.entries(rewards);
  const told = functions.length > 1 ? functions.map(([name, value]) => `${name} ${short(value)}`).join(", ") : "";
  return el("li", {},
    el("p", {}, el("b", { class: "number" }, short(reward)), " ", el("span", {}, harmless(told))),
    el("pre", { tabindex: "0", "aria-label": t("completions.completion") }, lines(completion)),
    el("details", {}, el("summary", {}, t("completions.prompt")), el("pre", {}, lines(prompt))));
}

// What is harmless of each line of a text.
function lines(text) {
  return text.split("\n").map(harmless).join("\n");
}
