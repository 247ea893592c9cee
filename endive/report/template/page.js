// Draws the charts, synchronises the controls of a group, sorts and filters the table, switches the theme.
const report = JSON.parse(document.getElementById("report").textContent);
const root = document.documentElement;
const views = new Map(); // chart's id -> its view
const PRIVATE = new Set(["view", "shown", "domains"]); // choices of one chart alone

// Data come by columns; every chart gets rows of its own, since Vega writes into them.
function rowsOf(columns) {
  const names = Object.keys(columns);
  const length = names.length ? columns[names[0]].length : 0;
  return Array.from({ length }, (_, row) => Object.fromEntries(names.map((name) => [name, columns[name][row]])));
}

function choicesOf(spec) {
  return (spec.params || []).filter((param) => param.bind && !PRIVATE.has(param.name)).map((param) => param.name);
}

async function draw(element) {
  const { group, spec } = report.charts[element.id];
  const data = report.groups[group];
  const datasets = Object.fromEntries(Object.entries(data).map(([name, columns]) => [name, rowsOf(columns)]));
  const { view } = await vegaEmbed(element, { ...spec, datasets }, {
    actions: false, renderer: "svg", mode: "vega-lite", config: report.config, tooltip: { theme: "custom" },
    bind: document.getElementById(`${element.id}-controls`), ast: false,
  });
  element.style.minHeight = "";
  views.set(element.id, view);
  for (const name of choicesOf(spec)) {
    const elsewhere = [...views].find(([id]) => id !== element.id && sameChoice(id, element.id, name));
    if (elsewhere) view.signal(name, elsewhere[1].signal(name));
    view.addSignalListener(name, (_, value) => spread(element.id, name, value));
  }
  settle(element.id);
  await view.resize().runAsync(); // a legend may have changed its rows when the width became known
  element.dataset.drawn = "true";
}

let resizing = 0;
window.addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => views.forEach((view) => view.resize().runAsync()), 150);
});

function sameChoice(one, other, name) {
  const [left, right] = [report.charts[one], report.charts[other]];
  return left.group === right.group && choicesOf(left.spec).includes(name) && choicesOf(right.spec).includes(name);
}

function spread(from, name, value) {
  for (const [id, view] of views) {
    if (id !== from && sameChoice(id, from, name) && view.signal(name) !== value) view.signal(name, value).resize().runAsync();
    if (id !== from && sameChoice(id, from, name)) settle(id);
  }
  settle(from);
}

// A parameter that is spread out over colours, rows or places is not chosen by value: its own control rests.
function settle(id) {
  const view = views.get(id);
  const names = choicesOf(report.charts[id].spec);
  const spreadOut = names.filter((name) => name.endsWith("_by")).map((name) => view.signal(name));
  for (const select of document.querySelectorAll(`[id="${id}-controls"] select`)) {
    const rests = spreadOut.some((field) => select.name === `only_${field}`);
    select.closest(".vega-bind").classList.toggle("rests", rests);
  }
  requestAnimationFrame(async () => {
    await view.resize().runAsync();
    reachable(document.getElementById(id));
  });
}

// Entries of a legend can be reached and toggled by keyboard.
function reachable(element) {
  const groups = element.querySelectorAll(".role-legend-symbol > path, .role-legend-symbol path");
  for (const symbol of groups) {
    symbol.setAttribute("tabindex", "0");
    symbol.setAttribute("role", "button");
    const label = symbol.__data__?.datum?.label ?? symbol.__data__?.datum?.value ?? "";
    symbol.setAttribute("aria-label", `Show ${label}`);
  }
}

document.addEventListener("keydown", (event) => {
  if ((event.key === "Enter" || event.key === " ") && event.target.closest?.(".role-legend-symbol")) {
    event.preventDefault();
    event.target.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  }
});

// What is in sight is drawn first, everything else while the browser has nothing to do.
const waiting = new Set(document.querySelectorAll(".chart"));
const idle = window.requestIdleCallback || ((work) => setTimeout(work, 50));

async function drawOnce(element) {
  if (waiting.delete(element)) await draw(element);
}

const sight = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) drawOnce(entry.target);
}, { rootMargin: "400px" });
waiting.forEach((element) => sight.observe(element));

async function drawRest() {
  const [next] = waiting;
  if (!next) return root.setAttribute("data-drawn", "true");
  await drawOnce(next);
  return idle(drawRest);
}
idle(drawRest);

// Theme: the system's, or the one chosen here for as long as the session lasts.
const button = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");
const stored = { get: () => { try { return sessionStorage.getItem("theme"); } catch { return null; } },
  set: (value) => { try { sessionStorage.setItem("theme", value); } catch { /* not kept, then */ } } };
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
function label() { button.textContent = isDark() ? "Light theme" : "Dark theme"; }
if (stored.get()) root.dataset.theme = stored.get();
button.hidden = false;
button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; stored.set(root.dataset.theme); label(); });
dark.addEventListener("change", label);
label();

// The table: a click on a heading sorts by it, typing shows the rows that have every word.
const table = document.getElementById("series");
if (table) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  const keyOf = (row, column) => row.cells[column].dataset.v ?? row.cells[column].textContent.trim();
  headings.forEach((heading, column) => heading.addEventListener("click", () => {
    const numbers = heading.classList.contains("n");
    const descending = heading.getAttribute("aria-sort") === (numbers ? null : "ascending")
      || (numbers && heading.getAttribute("aria-sort") !== "descending");
    const compare = (a, b) => {
      const [left, right] = [keyOf(a, column), keyOf(b, column)];
      if (!numbers) return (descending ? -1 : 1) * left.localeCompare(right, undefined, { numeric: true });
      if (left === "" || right === "") return (left === "") - (right === ""); // what is missing goes last
      return (descending ? -1 : 1) * (Number(left) - Number(right));
    };
    headings.forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    body.append(...[...body.rows].sort(compare));
  }));
  const input = document.getElementById("filter");
  input?.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    document.getElementById("count").textContent = `${shown} series`;
  });
}
