// The language, and the page's own texts in it. What describes the run comes in the document: its verdict, what went wrong and
// what to do in that language, what the catalog says of a series always in English.
const RECORDED = document.getElementById("data") !== null;
const REMEMBERED = "rlexporter.language";

function remembered() {
  try {
    return localStorage.getItem(REMEMBERED);
  } catch {
    return null; // a browser may forbid it
  }
}

function wish() {
  const asked = new URLSearchParams(location.hash.slice(1)).get("lang");
  const wanted = RECORDED ? [document.documentElement.lang] : [asked, remembered(), ...(navigator.languages || [])];
  const known = wanted.filter(Boolean).map((each) => each.toLowerCase().split("-")[0]);
  return known.find((each) => Object.hasOwn(STRINGS, each)) || "en";
}

const LANGUAGE = wish();
const SPACE = LANGUAGE === "zh" ? "" : " "; // between sentences

// The menu of languages. A choice goes into the address, so that it can be sent on, and begins the page anew.
function languages() {
  const menu = document.getElementById("language");
  menu.hidden = RECORDED;
  menu.setAttribute("aria-label", t("language.menu"));
  for (const [code, strings] of Object.entries(STRINGS)) {
    const option = new Option(strings.language, code, code === LANGUAGE, code === LANGUAGE);
    option.lang = code;
    menu.add(option);
  }
  menu.addEventListener("change", () => {
    try {
      localStorage.setItem(REMEMBERED, menu.value);
    } catch {
      // then the address alone says it
    }
    location.hash = `lang=${menu.value}`;
    location.reload();
  });
}

// The text of an id, with its {places} filled in; with `count`, the form that the language has for that number.
function t(id, values = {}) {
  const form = "count" in values ? `${id}.${new Intl.PluralRules(LANGUAGE).select(values.count)}` : id;
  const text = STRINGS[LANGUAGE][form] ?? STRINGS[LANGUAGE][id] ?? STRINGS.en[form] ?? STRINGS.en[id] ?? id;
  return text.replace(/\{(\w+)\}/g, (place, name) => {
    if (name === "count" && name in values) return GROUPED.format(values.count);
    return name in values ? String(values[name]) : place;
  });
}

function known(id) {
  return id in STRINGS[LANGUAGE] || id in STRINGS.en;
}
