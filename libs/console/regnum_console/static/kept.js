// What a visitor keeps in this browser, and no console is told: filters by name, topics that are favourites, and topics that are hidden.
const MOST = {favourites: 50, hidden: 1000};
const FILTERS = 50;

function kept(what) {
  try {
    const found = JSON.parse(localStorage.getItem(`regnum.${what}`));
    return Array.isArray(found) ? found : [];
  } catch { return []; }
}

function keep(what, all) {
  try { localStorage.setItem(`regnum.${what}`, JSON.stringify(all.slice(-(MOST[what] ?? FILTERS)))); } catch { /* Nothing may be kept. */ }
}

function make(name, about, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(about)) {
    if (key === "click") element.addEventListener("click", value);
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function button(text, label, click) {
  return make("button", {type: "button", title: label, "aria-label": label, click}, text);
}

function chosen(form) {
  return new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== "")).toString();
}

function filters(form) {
  const what = `filters.${form.dataset.saves}`;
  const place = make("p", {class: "kept"});
  const name = make("input", {placeholder: "name of this filter", "aria-label": "Name of this filter", maxlength: 60, size: 18});
  const save = () => {
    if (!name.value.trim()) { name.focus(); return; }
    const others = kept(what).filter((one) => one.name !== name.value.trim());
    keep(what, [...others, {name: name.value.trim(), query: chosen(form)}]);
    name.value = "";
    draw();
  };
  name.addEventListener("keydown", (event) => { if (event.key === "Enter") save(); });
  const draw = () => place.replaceChildren(
    ...kept(what).flatMap((one) => [
      make("a", {href: `${form.getAttribute("action")}?${new URLSearchParams(one.query)}`}, String(one.name)),
      button("×", `Forget ${one.name}`, () => { keep(what, kept(what).filter((other) => other.name !== one.name)); draw(); }),
    ]),
    name, button("Keep", "Keep what is in the form under this name, in this browser", save),
  );
  draw();
  form.after(place);
}

function topics(form) {
  const place = make("p", {class: "kept"});
  const rows = [...document.querySelectorAll("a[data-topic]")].map((link) => {
    const name = link.dataset.topic;
    const toggle = (what) => () => {
      const all = kept(what);
      keep(what, all.includes(name) ? all.filter((one) => one !== name) : [...all, name]);
      draw();
    };
    const star = button("☆", `Favourite: ${name}`, toggle("favourites"));
    const hide = button("hide", `Hide ${name}`, toggle("hidden"));
    link.after(" ", star, " ", hide);
    return {name, row: link.closest("tr"), star, hide};
  });
  let all = false;
  const more = button("", "Hidden topics of this page", () => { all = !all; draw(); });
  const draw = () => {
    const favourites = kept("favourites").map(String);
    const hidden = rows.filter((one) => kept("hidden").includes(one.name));
    for (const one of rows) {
      const is = {star: favourites.includes(one.name), hide: hidden.includes(one)};
      one.row.hidden = is.hide && !all;
      one.star.textContent = is.star ? "★" : "☆";
      one.hide.textContent = is.hide ? "show" : "hide";
      for (const what of ["star", "hide"]) one[what].setAttribute("aria-pressed", is[what]);
    }
    more.textContent = all ? "hide them again" : `show ${hidden.length} hidden`;
    more.hidden = !hidden.length;
    place.replaceChildren(
      ...favourites.map((name) => make("a", {href: `/topics/${encodeURIComponent(name)}`}, `★ ${name}`)), more,
    );
  };
  draw();
  form.after(place);
}

document.querySelectorAll("form[data-saves]").forEach(filters);
document.querySelectorAll("form[data-saves=topics]").forEach(topics);
