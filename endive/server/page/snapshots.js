// Snapshots as a graph: the newest above, an edge to each one's parent, branches and tags beside the snapshots they name.
import { element, rows } from "./parts.js";

const SVG = "http://www.w3.org/2000/svg";
const STEP = 28, LANE = 18, SHOWN = 200;

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function drawSnapshots(metadata) {
  const all = [...(metadata.snapshots || [])].sort((one, two) => two["timestamp-ms"] - one["timestamp-ms"]);
  if (!all.length) return element("p", { class: "hint", text: "No snapshot yet." });
  const shown = all.slice(0, SHOWN);
  const place = new Map(shown.map((one, number) => [one["snapshot-id"], number]));
  const refs = new Map();
  for (const [name, ref] of Object.entries(metadata.refs || {})) {
    const known = refs.get(ref["snapshot-id"]) || [];
    refs.set(ref["snapshot-id"], [...known, ref.type === "tag" ? `${name} (tag)` : name]);
  }
  const lanes = lanesOf(shown);
  const width = Math.max(...lanes.values()) * LANE + 30;
  const at = (one) => [15 + lanes.get(one["snapshot-id"]) * LANE, 16 + place.get(one["snapshot-id"]) * STEP];
  const svg = shape("svg", { width: width + 720, height: shown.length * STEP + 10, role: "img", "aria-label": `${all.length} snapshots` });
  for (const one of shown) {
    const parent = shown[place.get(one["parent-snapshot-id"])];
    if (!parent) continue;
    const [x, y] = at(one), [px, py] = at(parent);
    svg.append(shape("path", { class: "edge", d: `M${x} ${y} C${x} ${y + STEP} ${px} ${py - STEP} ${px} ${py}` }));
  }
  for (const one of shown) {
    const [x, y] = at(one), summary = one.summary || {};
    svg.append(shape("circle", { class: "node", cx: x, cy: y, r: 5 }));
    const time = new Date(one["timestamp-ms"]).toISOString().slice(0, 19).replace("T", " ");
    const line = shape("text", { x: width, y: y + 4 }, `${time}  ${summary.operation || ""}  ${one["snapshot-id"]}  +${summary["added-records"] || 0} rows  `);
    const named = refs.get(one["snapshot-id"]);
    if (named) line.append(shape("tspan", { class: "ref" }, named.join(", ")));
    svg.append(line);
  }
  const listed = Object.entries(metadata.refs || {}).map(([name, ref]) => [name, ref.type, String(ref["snapshot-id"])]);
  return element("div", {}, element("div", { class: "scroll" }, svg), rows(["branch or tag", "type", "snapshot"], listed),
    all.length > SHOWN ? element("p", { class: "hint", text: `The newest ${SHOWN} of ${all.length} snapshots.` }) : "");
}

// The lane of each snapshot: its first child's, else a free one.
function lanesOf(shown) {
  const lanes = new Map(), waiting = new Map();
  for (const one of shown) {
    const id = one["snapshot-id"], parent = one["parent-snapshot-id"];
    let lane = [...waiting].find(([, wanted]) => wanted === id)?.[0];
    for (const [number, wanted] of [...waiting]) if (wanted === id) waiting.delete(number);
    if (lane === undefined) { lane = 0; while (waiting.has(lane)) lane += 1; }
    lanes.set(id, lane);
    if (parent !== undefined && parent !== null) waiting.set(lane, parent);
  }
  return lanes;
}
