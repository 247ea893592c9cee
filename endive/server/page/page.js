// The catalog browser. It has no data of its own: everything comes from the REST protocol, with the caller's token, so
// that it shows what the caller may see. Text from the catalog is set as text, never as HTML.
import { drawSnapshots } from "./snapshots.js";
import { bytes, element, facts, rows } from "./parts.js";

const state = { token: sessionStorage.getItem("token") || "", prefix: "", current: null, counts: null };
const $ = (id) => document.getElementById(id);

class Refused extends Error {}

async function ask(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (state.token) headers.authorization = `Bearer ${state.token}`;
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  const isJson = (answer.headers.get("content-type") || "").includes("json");
  const text = await answer.text();
  const body = isJson ? parsed(text) : text;
  if (answer.status === 401) throw new Refused(body.error.message);
  if (!answer.ok) throw new Error(isJson ? body.error.message : `status ${answer.status}`);
  return body;
}

// Ids of snapshots have 64 bits, more than a number of JavaScript: they become text.
const LONG = /"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g;
const parsed = (text) => JSON.parse(text.replace(LONG, (found) => (found.startsWith('"') ? found : `"${found}"`)));

const catalog = (path, options) => ask(`v1/${state.prefix}${path}`, options);
const levels = (namespace) => encodeURIComponent(namespace.join("\u001f"));
const tablePath = (name) => `namespaces/${levels(name.namespace)}/tables/${encodeURIComponent(name.name)}`;

async function pages(path, key) {
  const found = [];
  let token = "";
  do {
    const mark = path.includes("?") ? "&" : "?";
    const page = await catalog(`${path}${mark}pageSize=1000&pageToken=${encodeURIComponent(token)}`);
    found.push(...page[key]);
    token = page["next-page-token"];
  } while (token);
  return found;
}

async function start() {
  try {
    const names = await ask("page/warehouses");
    $("sign-in").hidden = true;
    $("sign-out").hidden = !state.token;
    $("choose").hidden = names.warehouses.length < 2;
    $("warehouses").replaceChildren(...names.warehouses.map((name) => element("option", { text: name, value: name })));
    $("browser").hidden = false;
    await open(names.warehouses[0]);
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    if (!(error instanceof Refused)) return problem(error);
    $("browser").hidden = true;
    $("sign-in").hidden = false;
    $("sign-in-problem").textContent = state.token ? error.message : "";
    $("token").focus();
  }
}

async function open(warehouse) {
  if (!warehouse) return problem(new Error("Nothing is granted to this caller."));
  const config = await ask(`v1/config?warehouse=${encodeURIComponent(warehouse)}`);
  const prefix = config.overrides.prefix;
  state.prefix = prefix ? `${encodeURIComponent(prefix)}/` : "";
  $("main").replaceChildren(element("p", { class: "hint", text: "Choose a table." }));
  $("tree").replaceChildren(...(await branch([])));
}

async function branch(parent) {
  const inner = parent.length ? `namespaces?parent=${levels(parent)}` : "namespaces";
  return (await pages(inner, "namespaces")).map((namespace) => namespaceItem(namespace));
}

function namespaceItem(namespace) {
  const list = element("ul", { hidden: true });
  const button = element("button", { class: "namespace", text: namespace.at(-1), type: "button", "aria-expanded": "false" });
  button.onclick = async () => {
    const isOpen = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!isOpen));
    list.hidden = isOpen;
    if (isOpen || list.childElementCount) return;
    try {
      const tables = await pages(`namespaces/${levels(namespace)}/tables`, "identifiers");
      const views = await pages(`namespaces/${levels(namespace)}/views`, "identifiers");
      list.replaceChildren(...(await branch(namespace)), ...tables.map((one) => leaf(one, showTable, "")),
        ...views.map((one) => leaf(one, showView, " (view)")));
      if (!list.childElementCount) list.append(element("li", { class: "hint", text: "empty" }));
    } catch (error) { problem(error); }
  };
  return element("li", {}, button, list);
}

function leaf(name, show, suffix) {
  const button = element("button", { class: "leaf", text: name.name + suffix, type: "button" });
  button.onclick = async () => {
    document.querySelectorAll("nav [aria-current]").forEach((one) => one.removeAttribute("aria-current"));
    button.setAttribute("aria-current", "true");
    try { await show(name); } catch (error) { problem(error); }
  };
  return element("li", {}, button);
}

// Arrow keys move between the names that are shown; Enter and Space open, as everywhere.
$("tree").addEventListener("keydown", (event) => {
  const shown = [...$("tree").querySelectorAll("button")].filter((one) => one.offsetParent);
  const place = shown.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const opens = { ArrowRight: "false", ArrowLeft: "true" }[event.key];
  if (step && shown[place + step]) { shown[place + step].focus(); event.preventDefault(); }
  if (opens && document.activeElement.getAttribute("aria-expanded") === opens) document.activeElement.click();
});

$("filter").addEventListener("input", () => {
  const wanted = $("filter").value.toLowerCase();
  for (const one of document.querySelectorAll("nav .leaf"))
    one.parentElement.hidden = !one.textContent.toLowerCase().includes(wanted);
});

async function showView(name) {
  const path = `namespaces/${levels(name.namespace)}/views/${encodeURIComponent(name.name)}`;
  const { metadata } = await catalog(path);
  const current = metadata.versions.find((one) => one["version-id"] === metadata["current-version-id"]);
  const sql = current.representations.map((one) => [one.dialect, one.sql]);
  $("main").replaceChildren(title(name), rows(["dialect", "SQL"], sql));
}

const title = (name) => element("h2", { text: [...name.namespace, name.name].join(".") });

async function showTable(name) {
  const loaded = await catalog(tablePath(name));
  const panel = element("section", { id: "panel", role: "tabpanel" });
  const kinds = {
    Overview: () => overview(loaded), Schema: () => schema(loaded.metadata),
    Snapshots: () => drawSnapshots(loaded.metadata), Files: () => files(name, loaded.metadata),
    Properties: () => rows(["property", "value"], Object.entries(loaded.metadata.properties || {}).sort()),
  };
  const tabs = Object.entries(kinds).map(([label, make]) => {
    const tab = element("button", { text: label, type: "button", role: "tab", "aria-selected": "false", "aria-controls": "panel" });
    tab.onclick = async () => {
      tabs.forEach((one) => one.setAttribute("aria-selected", String(one === tab)));
      try { panel.replaceChildren(await make()); }
      catch (error) { panel.replaceChildren(element("p", { class: "problem", role: "alert", text: error.message })); }
    };
    return tab;
  });
  const bar = element("div", { class: "tabs", role: "tablist" }, ...tabs);
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = step && tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
    if (next) { next.focus(); next.click(); }
  });
  $("main").replaceChildren(title(name), bar, panel);
  tabs[0].click();
}

function overview({ metadata, "metadata-location": place }) {
  const current = (metadata.snapshots || []).find((one) => one["snapshot-id"] === metadata["current-snapshot-id"]);
  const summary = current ? current.summary : {};
  return facts({
    "Rows": summary["total-records"], "Data files": summary["total-data-files"],
    "Size": summary["total-files-size"] && bytes(Number(summary["total-files-size"])),
    "Snapshots": (metadata.snapshots || []).length, "Changed": new Date(metadata["last-updated-ms"]).toISOString(),
    "Format": metadata["format-version"], "Location": metadata.location, "Metadata file": place,
    "UUID": metadata["table-uuid"],
  });
}

function schema(metadata) {
  const found = metadata.schemas.find((one) => one["schema-id"] === metadata["current-schema-id"]);
  const spec = metadata["partition-specs"].find((one) => one["spec-id"] === metadata["default-spec-id"]);
  const named = Object.fromEntries(found.fields.map((one) => [one.id, one.name]));
  const parts = spec.fields.map((one) => `${one.transform}(${named[one["source-id"]]})`).join(", ");
  const kind = (type) => (typeof type === "string" ? type : type.type === "list" ? `list<${kind(type.element)}>`
    : type.type === "map" ? `map<${kind(type.key)}, ${kind(type.value)}>`
    : `struct<${type.fields.map((one) => `${one.name}: ${kind(one.type)}`).join(", ")}>`);
  const lines = found.fields.map((one) => [one.id, one.name, kind(one.type), one.required ? "required" : "", one.doc || ""]);
  return element("div", {}, rows(["id", "column", "type", "", "comment"], lines, [0]), facts({ "Partitioned by": parts || "nothing" }));
}

// A listing is cut after so many pages of 1,000 files, and so many rows are shown.
const PLAN_TASKS_MAX = 20;
const ROWS_SHOWN = 200;
const shown = (count) => (count > ROWS_SHOWN ? `, ${ROWS_SHOWN} of them shown` : "");

async function files(name, metadata) {
  const post = (path, body) => catalog(`${tablePath(name)}/${path}`, { method: "POST", body: JSON.stringify(body) });
  const plan = await post("plan", {});
  const tasks = [...(plan["file-scan-tasks"] || [])];
  const further = plan["plan-tasks"] || [];
  for (const task of further.slice(0, PLAN_TASKS_MAX)) tasks.push(...(await post("tasks", { "plan-task": task }))["file-scan-tasks"]);
  const spec = Object.fromEntries(metadata["partition-specs"].map((one) => [one["spec-id"], one.fields]));
  const partitions = new Map();
  for (const { "data-file": file } of tasks) {
    const key = file.partition.map((value, place) => `${spec[file["spec-id"]][place].name}=${value}`).join("/") || "(all)";
    const known = partitions.get(key) || { files: 0, rows: 0, size: 0 };
    known.files += 1; known.rows += file["record-count"]; known.size += file["file-size-in-bytes"];
    partitions.set(key, known);
  }
  const largest = [...partitions].sort((one, two) => two[1].size - one[1].size);
  const most = Math.max(1, ...largest.map(([, one]) => one.size));
  const bar = (size) => { const found = element("span", { class: "bar" }); found.style.width = `${Math.ceil((size / most) * 120)}px`; return found; };
  const sorted = tasks.map((one) => one["data-file"]).sort((one, two) => two["file-size-in-bytes"] - one["file-size-in-bytes"]);
  const cut = further.length > PLAN_TASKS_MAX
    ? [element("p", { class: "problem", role: "note", text: `The table has more files. Only the first ${tasks.length} are counted here.` })] : [];
  return element("div", {}, ...cut,
    element("h3", { text: `${partitions.size} partitions by size${shown(partitions.size)}` }),
    rows(["partition", "files", "rows", "size", ""], largest.slice(0, ROWS_SHOWN).map(([key, one]) => [key, one.files, one.rows, bytes(one.size), bar(one.size)]), [1, 2, 3]),
    element("h3", { text: `${sorted.length} files, the largest first${shown(sorted.length)}` }),
    rows(["file", "rows", "size"], sorted.slice(0, ROWS_SHOWN).map((one) => [one["file-path"], one["record-count"], bytes(one["file-size-in-bytes"])]), [1, 2]));
}

function problem(error) {
  $("browser").hidden = false;
  $("main").replaceChildren(element("p", { class: "problem", role: "alert", text: error.message }));
}

// Commits a second and conflicts by table, from the server's metrics.
const COMMITS = /^endive_requests_total\{operation="POST \/v1\/\{prefix\}\/(namespaces\/\{namespace\}\/tables\/\{table\}|transactions\/commit)",status="20\d"\} (\d+)/;
const CONFLICTS = /^endive_commit_conflicts_total\{warehouse="(?:[^"\\]|\\.)*",table="(.*)"\} (\d+)/;

async function live() {
  if (!$("browser").hidden && !document.hidden) {
    try {
      const lines = (await ask("metrics")).split("\n");
      const commits = lines.map((line) => COMMITS.exec(line)).filter(Boolean).reduce((sum, one) => sum + Number(one[2]), 0);
      const conflicts = lines.map((line) => CONFLICTS.exec(line)).filter(Boolean);
      const now = performance.now();
      const rate = state.counts ? ((commits - state.counts.commits) * 1000) / (now - state.counts.now) : 0;
      const worst = conflicts.sort((one, two) => two[2] - one[2]).slice(0, 3).map((one) => `${one[1]} ${one[2]}`).join(", ");
      $("live").textContent = `${rate.toFixed(1)} commits/s, ${commits} in all; conflicts: ${worst || "none"}`;
      state.counts = { commits, now };
    } catch { /* shown by what the caller does next */ }
  }
  setTimeout(live, 2000);
}

async function showApi() {
  const document_ = await ask("openapi.json");
  const lines = Object.entries(document_.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => [method.toUpperCase(), path, one.summary]));
  const link = element("a", { href: "openapi.json", text: "openapi.json" });
  $("main").replaceChildren(element("h2", { text: "API" }), element("p", {}, link), rows(["method", "path", ""], lines));
}

$("show-api").onclick = () => showApi().catch(problem);
$("warehouses").onchange = () => open($("warehouses").value).catch(problem);
$("sign-out").onclick = () => { sessionStorage.removeItem("token"); location.reload(); };
$("sign-in").onsubmit = (event) => {
  event.preventDefault();
  state.token = $("token").value.trim();
  sessionStorage.setItem("token", state.token);
  $("token").value = "";
  start();
};
await start();
live();
