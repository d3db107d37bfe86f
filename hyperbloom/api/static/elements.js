// Elements that are made once and changed where something has changed. Nothing is built from text:
// every piece of data goes into a text node, never into markup.

export const $ = (id) => document.getElementById(id);
export const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };
export const setClass = (node, name) => { if (node.className !== name) node.className = name; };
export const make = (name, text, className) => {
  const node = document.createElement(name);
  if (text != null) node.textContent = text;
  if (className) node.className = className;
  return node;
};

// A table whose rows are kept by key, so that only what has changed is touched. `choose` is called
// with the key of a row that is clicked, or whose first cell, then a button, is pressed.
export function fillTable(table, rows, choose) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const kept = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  rows.forEach(({ key, cells, chosen }, index) => {
    let row = kept.get(key);
    kept.delete(key);
    if (!row) {
      row = make("tr");
      row.dataset.key = key;
      for (const head of heads) {
        const cell = row.insertCell();
        cell.dataset.head = head.textContent;
        cell.className = head.className;
      }
      if (choose) {
        row.addEventListener("click", () => choose(key));
        row.cells[0].append(make("button", null, "row"));
      }
    }
    if (body.rows[index] !== row) body.insertBefore(row, body.rows[index] ?? null);
    if (choose) {
      setClass(row, chosen ? "chosen" : "");
      row.cells[0].firstElementChild.ariaCurrent = chosen ? "true" : "false";
    }
    cells.forEach((cell, column) => {
      const node = choose && column === 0 ? row.cells[0].firstElementChild : row.cells[column];
      if (typeof cell === "string") return setText(node, cell);
      const badge = node.firstElementChild ?? node.appendChild(make("span"));
      setText(badge, cell.text);
      setClass(badge, `badge ${cell.mood}`);
      return undefined;
    });
  });
  for (const row of kept.values()) row.remove();
}

export function fillFacts(list, facts) {
  if (list.children.length !== facts.length) {
    list.replaceChildren(...facts.map(() => { const d = make("div"); d.append(make("dt"), make("dd")); return d; }));
    if (list.classList.contains("facts")) list.replaceChildren(...facts.flatMap(() => [make("dt"), make("dd")]));
  }
  const names = list.querySelectorAll("dt");
  const values = list.querySelectorAll("dd");
  facts.forEach(([name, value], i) => { setText(names[i], name); setText(values[i], value); });
}

export function svgMake(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text != null) node.textContent = text;
  return node;
}

