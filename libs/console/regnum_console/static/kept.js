// What a visitor keeps in this browser, and no console is told: filters by name.
const MOST = 50;

function kept(what) {
  try {
    const found = JSON.parse(localStorage.getItem(`regnum.${what}`));
    return Array.isArray(found) ? found : [];
  } catch { return []; }
}

function keep(what, all) {
  try { localStorage.setItem(`regnum.${what}`, JSON.stringify(all.slice(-MOST))); } catch { /* Nothing may be kept. */ }
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

document.querySelectorAll("form[data-saves]").forEach(filters);
