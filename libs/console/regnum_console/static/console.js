// Puts in place what the console's streams send, and opens pages by keys. What comes is HTML of the console itself.
const main = document.getElementById("main");
const live = document.getElementById("live");

function say(state, text) {
  if (!live) return;
  live.dataset.state = state;
  live.textContent = text;
}

// Whoever moves through a page by keyboard stays where they are when it is made anew.
function focused(within) {
  const at = document.activeElement;
  return within.contains(at) ? at.id ? `#${CSS.escape(at.id)}` : at.getAttribute("href") && `a[href="${CSS.escape(at.getAttribute("href"))}"]` : null;
}

function put({element, html, how, keep}) {
  const target = document.getElementById(element);
  if (!target) return;
  if (how === "replace") {
    const at = focused(target);
    const scrolled = [...target.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    target.innerHTML = html;
    target.querySelectorAll(".wide").forEach((one, i) => { if (scrolled[i]) one.scrollLeft = scrolled[i]; });
    if (at) target.querySelector(at)?.focus({preventScroll: true});
    return;
  }
  target.insertAdjacentHTML(how === "prepend" ? "afterbegin" : "beforeend", html);
  while (keep && target.children.length > keep) {
    (how === "prepend" ? target.lastElementChild : target.firstElementChild).remove();
  }
}

if (document.querySelector("form[data-saves], a[data-topic]")) import("./kept.js");

// A browser has six connections to a place, and each stream takes one: pages that are not looked at hold none, but for
// those that would miss something.
const misses = document.getElementById("stop") || document.getElementById("new");
if (main.dataset.live) document.hidden && !misses ? rest() : follow();

function rest() {
  say("hidden", "paused");
  document.addEventListener("visibilitychange", follow, {once: true});
}

function follow() {
  const source = new EventSource(main.dataset.live);
  const end = (text) => { source.close(); say("done", text); document.getElementById("stop")?.remove(); };
  source.addEventListener("open", () => say("open", "live"));
  source.addEventListener("part", (event) => put(JSON.parse(event.data)));
  source.addEventListener("done", (event) => {
    const {html} = JSON.parse(event.data);
    put({element: "progress", html, how: "replace"});
    end(document.getElementById("progress") ? "done" : html);
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden || misses || source.readyState === EventSource.CLOSED) return;
    source.close();
    rest();
  });
  source.addEventListener("trouble", (event) => say("lost", JSON.parse(event.data).text));
  source.onerror = () => {
    // A search that began anew would find everything twice.
    if (source.readyState === EventSource.CLOSED) end("ended: load this page again");
    else if (document.getElementById("progress")) end("connection lost: search again");
    else if (live.dataset.state === "open") say("lost", "connection lost, trying again");
  };
  document.getElementById("stop")?.addEventListener("click", () => end("stopped"));
  addEventListener("pagehide", () => source.close());
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "/") {
    const field = document.querySelector("form[role=search] input[type=search]");
    if (field) { event.preventDefault(); field.focus(); }
  } else if (/^[1-9]$/.test(event.key)) {
    document.querySelectorAll("nav a")[Number(event.key) - 1]?.click();
  }
});
