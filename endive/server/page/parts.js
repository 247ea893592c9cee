// Small parts of the page. Everything is made as elements and text.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") made.textContent = value;
    else if (typeof value === "boolean") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export function rows(headings, lines, numbers = []) {
  const kind = (place) => (numbers.includes(place) ? { class: "number" } : {});
  const head = element("tr", {}, ...headings.map((text, place) => element("th", { scope: "col", text, ...kind(place) })));
  const body = lines.map((line) => element("tr", {}, ...line.map((value, place) =>
    value instanceof Node ? element("td", {}, value) : element("td", { text: value ?? "", ...kind(place) }))));
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}

export function facts(values) {
  const shown = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return element("dl", { class: "facts" }, ...shown.flatMap(([name, value]) => [element("dt", { text: name }), element("dd", { text: value })]));
}

export function bytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let place = 0;
  while (size >= 1000 && place < units.length - 1) { size /= 1000; place += 1; }
  return `${place ? size.toFixed(1) : size} ${units[place]}`;
}
