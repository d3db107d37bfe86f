// The graph of trust: a tree that grows to the right and down, a row for each member, so that it is
// read from its root on a narrow screen, too. Who introduces many shows the first of them, those
// that are connected before the others, and a row for the rest.

import { $, svgMake } from "./elements.js";
import { ago, keyName, now, until, whole } from "./words.js";

const CHILDREN_SHOWN = 8;
const NAME_SHOWN = 24;
// Pixels of a row: a name, until when, and that somebody was invited.
const [ROW, ROW_INVITED] = [330, 520];
export const SOON_SECONDS = 7 * 86400;

// own: the key by which this node goes in the feed. shape: the members as text.
const shown = { feed: null, own: null, members: [], shape: null, expanded: new Set() };

export const endsSoon = (expires) => expires != null && expires - now() < SOON_SECONDS;

export function showGraph(feed, own, members) {
  const shape = JSON.stringify([own, members]);
  if (feed === shown.feed && shape === shown.shape) return;
  if (feed !== shown.feed) shown.expanded = new Set();
  Object.assign(shown, { feed, own, members, shape });
  drawGraph();
}

function layOut(members, own) {
  const children = new Map();
  for (const member of members) {
    if (member.introduced_by == null) continue;
    if (!children.has(member.introduced_by)) children.set(member.introduced_by, []);
    children.get(member.introduced_by).push(member);
  }
  const weight = (m) => (m.key === own ? 0 : children.has(m.key) ? 1 : m.connected ? 2 : 3);
  const placed = [];
  let row = 0;
  const seen = new Set();
  const place = (member, depth, parent) => {
    seen.add(member.key);
    const node = { member, depth, parent, row: row++ };
    placed.push(node);
    const below = (children.get(member.key) ?? []).filter((one) => !seen.has(one.key))
      .sort((a, b) => weight(a) - weight(b) || a.key.localeCompare(b.key));
    const most = shown.expanded.has(member.key) ? below.length : CHILDREN_SHOWN;
    for (const one of below.slice(0, most)) place(one, depth + 1, node);
    const more = below.length - most;
    if (more > 0) placed.push({ more, of: member.key, depth: depth + 1, parent: node, row: row++ });
    return node;
  };
  const root = members.find((one) => one.introduced_by == null);
  if (root) place(root, 0, null);
  return { placed, rows: row };
}

export function drawGraph() {
  const { own } = shown;
  const { placed, rows } = layOut(shown.members, own);
  const deepest = placed.reduce((most, node) => Math.max(most, node.depth), 0);
  const step = $("graph-box").clientWidth < 600 ? 22 : 56;
  const x = (node) => 12 + node.depth * step;
  const y = (node) => 14 + node.row * 26;
  const [width, height] = [12 + deepest * step + (shown.members.some((one) => one.invited_at != null) ? ROW_INVITED : ROW), rows * 26 + 4];
  const lines = placed.filter((node) => node.parent).map((node) => {
    const [x1, y1, x2, y2] = [x(node.parent), y(node.parent), x(node), y(node)];
    return svgMake("path", { "aria-hidden": "true", d: `M${x1} ${y1 + 6}V${y2 - 8}Q${x1} ${y2} ${x1 + 8} ${y2}H${x2 - 6}` });
  });
  const nodes = placed.map((node) => (node.more ? drawMore(node, x(node), y(node)) : drawMember(node, own, x(node), y(node))));
  const graph = $("graph");
  graph.setAttribute("width", width);
  graph.setAttribute("height", height);
  graph.setAttribute("viewBox", `0 0 ${width} ${height}`);
  graph.replaceChildren(...lines, ...nodes);
}

const clipped = (name) => (name.length > NAME_SHOWN ? `${name.slice(0, NAME_SHOWN - 1)}…` : name);

function drawMember({ member }, own, x, y) {
  const soon = endsSoon(member.expires);
  const kind = `${member.key === own ? "own" : member.connected ? "on" : "off"}${soon ? " soon" : ""}`;
  const by = member.introduced_by;
  const invited = member.invited_at == null ? null : `invited ${ago(member.invited_at)}, not seen yet`;
  const end = by == null ? "the feed's owner" : `until ${until(member.expires)}`;
  const words = by == null ? "owner" : [until(member.expires), invited].filter((one) => one).join(", ");
  const stands = member.key === own ? "this node" : invited ?? (member.connected ? "connected" : "not connected");
  const called = member.name ? `${member.name}, ${member.key}` : member.key;
  const more = [by == null ? null : `introduced by ${member.introduced_by_name ?? by}`, end, stands, soon ? "ends within 7 days" : null];
  const label = [called, ...more.filter((one) => one)].join("\n");
  const group = svgMake("g", { class: kind, role: "listitem", "aria-label": label });
  const name = svgMake("text", { x: x + 11, y: y + 4 }, clipped(keyName(member)));
  const rest = svgMake("tspan", { class: "until", dx: 10 }, member.key === own ? `here, ${words}` : words);
  name.append(rest);
  group.append(svgMake("title", {}, label), svgMake("circle", { cx: x, cy: y, r: 5 }), name);
  return group;
}

function drawMore(node, x, y) {
  const item = svgMake("g", { role: "listitem" });
  const group = svgMake("g", { class: "more", tabindex: 0, role: "button" });
  group.append(svgMake("circle", { cx: x, cy: y, r: 5 }), svgMake("text", { x: x + 10, y: y + 4 }, `${whole.format(node.more)} more`));
  const expand = () => { shown.expanded.add(node.of); drawGraph(); };
  group.addEventListener("click", expand);
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); expand(); }
  });
  item.append(group);
  return item;
}
