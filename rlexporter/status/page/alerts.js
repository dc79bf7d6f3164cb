// What has gone wrong, in the order of the document: the likeliest cause first, symptoms last.
function alerts(status) {
  const { length } = status.conditions;
  find("alerts").hidden = !length;
  const speaks = status.verdict.conditions.length > 0;
  say(find("alerts-title"), !speaks ? t("alerts.past", { count: length }) : length > 1 ? t("alerts.followed", { count: length - 1 }) : t("alerts.about"));
  sync(find("alerts-list"), status.conditions, (each) => each.name, makeAlert, fillAlert);
}

// The value of such a condition is how many there were.
function countsNonfinite(each) {
  return each.name.startsWith("nonfinite") && typeof each.value === "number";
}

const WORD_OF = { critical: "act", warning: "look", info: "unknown" };

function makeAlert() {
  return el("li", {},
    el("span", { class: "alert-icon" }),
    el("div", { class: "alert-said" },
      el("p", { class: "alert-title" }, el("b"), " ", el("span", { class: "alert-severity" }), " ", el("span", { class: "alert-state" }), " ", el("span", { class: "alert-tag" })),
      el("p", { class: "alert-summary" }),
      el("details", {}, el("summary", {}, t("alert.details")), el("p", { lang: "en" }), el("ul"))),
    el("div", { class: "alert-facts" }, el("p", { class: "alert-step" }), el("p", { class: "alert-value" }), el("p", { class: "alert-link" })));
}

function fillAlert(node, each) {
  const [sign, said, right] = node.children;
  node.classList.toggle("symptom", Boolean(each.symptom));
  node.classList.toggle("past", each.standing === "over");
  show(sign, WORD_OF[each.severity] || "unknown");
  const [name, severity, state, tag] = said.children[0].children;
  say(name, each.subject ? `${each.alert}: ${each.subject}` : each.alert, each.name);
  say(severity, t(`severity.${each.severity}`));
  say(state, t(`alert.${each.standing}`));
  say(tag, each.symptom ? t("alert.symptom") : "");
  prose(said.children[1], each.summary);
  const [, meaning, actions] = said.children[2].children;
  prose(meaning, each.meaning || "");
  sync(actions, each.actions || [], (text) => text, () => el("li"), prose);
  const [step, value, runbook] = right.children;
  const began = [t("alert.step", { step: GROUPED.format(each.step) }), each.timestamp ? clock(each.timestamp) : "", each.count > 1 ? t("times", { count: each.count }) : ""];
  say(step, began.filter(Boolean).join(" · "));
  const limited = (each.threshold ?? null) !== null;
  const unit = (number) => ` ${unitOf(each.signal_unit, number)}`.trimEnd();
  if (countsNonfinite(each)) say(value, t("alert.nonfinite", { count: each.value }), full(each.value));
  else say(value, t(limited ? "alert.value" : "alert.value.alone", { value: short(each.value) + (limited ? "" : unit(each.value)), limit: short(each.threshold) + unit(each.threshold) }), `${full(each.value)} / ${full(each.threshold)}`);
  if (runbook.dataset.to !== each.runbook) {
    runbook.dataset.to = each.runbook;
    const to = link(page(each.runbook), t("runbook"));
    to.setAttribute("aria-label", t("runbook.of", { alert: each.alert }));
    runbook.replaceChildren(...(address(each.runbook) ? [to] : []));
  }
}
