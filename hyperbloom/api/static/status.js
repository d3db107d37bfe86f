// The status page: one stream of frames (/v1/live), and the chosen feed's peers and members.
// Nothing is built from text: every piece of data goes into a text node, never into markup.

const PAGE_PEERS = 50;
const FEED_SECONDS = 5;
const SOON_SECONDS = 7 * 86400;
const CHILDREN_SHOWN = 8;
const MAX_ERRORS = 20;
const TOKEN = "hyperbloom-session";

const $ = (id) => document.getElementById(id);
const state = {
  frame: null, chosen: null, offset: 0, members: [], expanded: new Set(), rates: new Map(), filter: "",
};

// Words for numbers

const whole = new Intl.NumberFormat();
const bytes = (n) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i += 1; }
  return `${i ? n.toFixed(1) : n} ${units[i]}`;
};
const span = (seconds) => {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
};
const now = () => state.frame?.at ?? Date.now() / 1000;
const ago = (at) => (at == null ? "–" : `${span(now() - at)} ago`);
const until = (at) => {
  if (at == null) return "no end";
  return at <= now() ? "ended" : `${new Date(at * 1000).toISOString().slice(0, 10)} (${span(at - now())})`;
};
const short = (key) => `${key.slice(0, 8)}…`;
const rate = (n) => (n == null ? "–" : n === 0 ? "0/s" : n < 10 ? `${n.toFixed(1)}/s` : `${whole.format(Math.round(n))}/s`);
const OWN_KEY = "its key is the node's own, so whoever knows the node's public key can read it; hyperbloom feed create NAME --from own moves its values";
const feedName = (feed) => feed.alias ?? (feed.own ? "own" : short(feed.key));

// Elements

const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const setClass = (node, name) => { if (node.className !== name) node.className = name; };
const make = (name, text, className) => {
  const node = document.createElement(name);
  if (text != null) node.textContent = text;
  if (className) node.className = className;
  return node;
};

// A table whose rows are kept by key, so that only what has changed is touched.
function fillTable(table, rows, choose) {
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
        row.tabIndex = 0;
        row.addEventListener("click", () => choose(key));
        row.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(key); });
      }
    }
    if (body.rows[index] !== row) body.insertBefore(row, body.rows[index] ?? null);
    if (choose) setClass(row, chosen ? "chosen" : "");
    cells.forEach((cell, column) => {
      const node = row.cells[column];
      if (typeof cell === "string") return setText(node, cell);
      const badge = node.firstElementChild ?? node.appendChild(make("span"));
      setText(badge, cell.text);
      setClass(badge, `badge ${cell.mood}`);
      return undefined;
    });
  });
  for (const row of kept.values()) row.remove();
}

function fillFacts(list, facts) {
  if (list.children.length !== facts.length) {
    list.replaceChildren(...facts.map(() => { const d = make("div"); d.append(make("dt"), make("dd")); return d; }));
    if (list.classList.contains("facts")) list.replaceChildren(...facts.flatMap(() => [make("dt"), make("dd")]));
  }
  const names = list.querySelectorAll("dt");
  const values = list.querySelectorAll("dd");
  facts.forEach(([name, value], i) => { setText(names[i], name); setText(values[i], value); });
}

// The frame

function noteRates(frame) {
  for (const feed of frame.status.feeds) {
    const last = state.rates.get(feed.key);
    const seconds = last ? frame.at - last.at : 0;
    if (!last) state.rates.set(feed.key, { at: frame.at, seq: feed.top_seq, rate: null });
    else if (seconds > 0.5) {
      const fresh = Math.max(0, feed.top_seq - last.seq) / seconds;
      const smooth = last.rate == null ? fresh : 0.6 * fresh + 0.4 * last.rate;
      state.rates.set(feed.key, { at: frame.at, seq: feed.top_seq, rate: smooth < 0.01 ? 0 : smooth });
    }
  }
}

function endsSoon(expires) {
  return expires != null && expires - now() < SOON_SECONDS;
}

function feedState(feed, steps) {
  if (feed.trust === "none") return { text: "not trusted", mood: "bad" };
  if (feed.trust === "expired") return { text: "link ended", mood: "bad" };
  if (feed.is_full) return { text: "full", mood: "bad" };
  if (!steps) return { text: "no peer", mood: feed.problem ? "bad" : "" };
  const all = steps.in_step === steps.peers;
  return { text: all ? "in sync" : `${steps.in_step} of ${steps.peers} in sync`, mood: all ? "good" : "warn" };
}

/** The beginning of a feed's digest, or how far it is computed, in a store of an older version. */
function feedDigest({ digest, digest_left: left, count }) {
  return digest === null ? `computed to ${Math.floor((100 * (count - left)) / count)} %` : digest.slice(0, 8);
}

/** How many of a feed's streams nobody between both nodes can read or alter. */
function protection({ peers, peers_unprotected: bare }) {
  if (!peers) return { text: "–", mood: "" };
  return bare ? { text: `${whole.format(peers - bare)} of ${whole.format(peers)}`, mood: "warn" } : { text: "all", mood: "good" };
}

function drawFeeds({ status, steps }) {
  const wanted = state.filter.toLowerCase();
  const feeds = status.feeds.filter((f) => feedName(f).toLowerCase().includes(wanted) || f.key.startsWith(wanted));
  fillTable($("feeds"), feeds.map((feed) => ({
    key: feed.key,
    chosen: feed.key === state.chosen,
    cells: [
      feedName(feed), whole.format(feed.count), rate(state.rates.get(feed.key)?.rate), feedDigest(feed),
      whole.format(steps[feed.key]?.peers ?? 0), protection(feed), ago(steps[feed.key]?.last_sync), feedState(feed, steps[feed.key]),
    ],
  })), choose);
}

function drawGlance({ at, status, steps }) {
  const all = Object.values(steps);
  const sum = (list, of) => list.reduce((total, one) => total + of(one), 0);
  fillFacts($("glance"), [
    ["feeds", whole.format(status.feeds.length)],
    ["values", whole.format(sum(status.feeds, (f) => f.count))],
    ["peers", whole.format(sum(all, (s) => s.peers))],
    ["in sync", `${whole.format(sum(all, (s) => s.in_step))} of ${whole.format(sum(all, (s) => s.peers))}`],
    ["protected", `${whole.format(sum(status.feeds, (f) => f.peers - f.peers_unprotected))} of ${whole.format(sum(status.feeds, (f) => f.peers))}`],
    ["store", bytes(status.store.used_bytes)],
    ["running for", span(at - status.started)],
  ]);
  setText($("node"), `${status.public_key} · ${status.version} · ${status.listening.join(", ") || "only dials"}`);
}

function drawStore({ status }) {
  const { map_bytes: map, used_bytes: used, free_bytes: free, file_bytes: file } = status.store;
  const bar = $("map");
  if (!bar.children.length) bar.append(make("i"), make("i"));
  const share = (n) => `${map ? (100 * n) / map : 0}%`;
  bar.children[0].style.width = share(used - free);
  bar.children[1].style.width = share(free);
  bar.setAttribute("aria-label", `${share(used)} of the map is used`);
  fillFacts($("store"), [
    ["used", bytes(used - free)], ["free pages", bytes(free)], ["map", `${bytes(map)}, grows by itself`],
    ["file", bytes(file)], ["waits for the disk", bytes(status.queued_bytes)],
    ...(status.store_problem ? [["problem", status.store_problem]] : []),
  ]);
}

function drawDiscovery({ status }) {
  const found = status.discovery;
  if (!found.enabled) return fillFacts($("discovery"), [["discovery", "off"]]);
  const { dht, lan } = found;
  return fillFacts($("discovery"), [
    ["DHT nodes", `${dht.good_nodes} good of ${dht.nodes}`], ["seen at", dht.external_address ?? "not known yet"],
    ["role", dht.server ? "server" : "only asks"], ["items for others", whole.format(dht.items)],
    ["multicast DNS", lan ? lan.problem ?? (lan.interfaces.join(", ") || "no interface") : "off"],
    ["feeds searched for", whole.format(found.feeds.length)],
  ]);
}

function drawPool({ status }) {
  const pool = status.objects;
  $("pool").hidden = !pool;
  if (!pool) return;
  fillFacts($("pool-facts"), [
    ["objects", `${whole.format(pool.count)}, ${bytes(pool.bytes)}`], ["digest", pool.digest.slice(0, 8)],
    ["listening", `${pool.listening.join(", ") || "only dials"}${pool.encrypted ? ", AES flag" : ""}`],
    ["refused for a clash", whole.format(pool.clashes)],
  ]);
  fillTable($("pool-peers"), pool.peers.map((peer) => ({
    key: `${peer.address} ${peer.outgoing}`,
    cells: [
      peer.address, peer.outgoing ? "out" : "in", peer.kin ? "hyperbloom" : "another", span(now() - peer.since),
      whole.format(peer.messages_in), whole.format(peer.messages_out),
      peer.untold ? { text: whole.format(peer.untold), mood: "warn" } : { text: "0", mood: "" },
    ],
  })));
  $("no-types").hidden = pool.types.length > 0;
  fillTable($("types"), pool.types.map((type) => {
    const open = type.indexOf("(");
    return { key: type, cells: [type.slice(0, open), type.slice(open + 1, -1)] };
  }));
  $("types").hidden = pool.types.length === 0;
}

function drawErrors({ errors, status }) {
  const refusals = status.refusals.map((r) => ({ at: r.at, text: `${r.address} was turned away: ${r.reason}` }));
  const problems = status.feeds.filter((f) => f.problem).map((f) => ({ at: null, text: `${feedName(f)}: ${f.problem}` }));
  problems.push(...status.feeds.filter((f) => f.own).map((f) => ({ at: null, text: `${feedName(f)}: ${OWN_KEY}` })));
  problems.push(...status.feeds.filter((f) => f.trusted && endsSoon(f.chain_expires)).map((f) => ({
    at: null, text: `${feedName(f)}: this node may write for ${span(f.chain_expires - now())} more; have its link renewed by who invited it`,
  })));
  const left = (status.objects?.peers ?? []).filter((p) => p.untold)
    .map((p) => ({ at: null, text: `object pool: ${p.address} is not told of what it cannot read: ${p.untold_why}` }));
  const logged = errors.map((e) => ({ at: e.at, text: `${e.level}: ${e.text}` }));
  const all = [...problems, ...left, ...[...refusals, ...logged].sort((a, b) => b.at - a.at)].slice(0, MAX_ERRORS);
  $("errors").replaceChildren(...(all.length ? all : [{ text: "None." }]).map(({ at, text }) => {
    const item = make("li");
    if (all.length) item.append(make("time", at == null ? "now" : ago(at)));
    item.append(text);
    return item;
  }));
}

function draw(frame) {
  state.frame = frame;
  noteRates(frame);
  const feeds = frame.status.feeds;
  if (!feeds.some((feed) => feed.key === state.chosen)) {
    const peers = (feed) => frame.steps[feed.key]?.peers ?? 0;
    choose([...feeds].sort((a, b) => peers(b) - peers(a))[0]?.key ?? null);
  }
  for (const part of [drawGlance, drawFeeds, drawPool, drawStore, drawDiscovery, drawErrors]) part(frame);
  drawDetailHead();
  document.body.dataset.frames = String(Number(document.body.dataset.frames ?? 0) + 1);
}

// The chosen feed

function drawDetailHead() {
  const feed = state.frame.status.feeds.find((one) => one.key === state.chosen);
  $("detail").hidden = !feed;
  if (!feed) return;
  setText($("feed-name"), `${feedName(feed)} (${short(feed.key)})`);
  $("feed-problem").hidden = !feed.problem;
  setText($("feed-problem"), feed.problem ?? "");
}

function choose(key) {
  if (key === state.chosen) return;
  Object.assign(state, { chosen: key, offset: 0, members: [], shape: null, expanded: new Set() });
  if (state.frame) { drawFeeds(state.frame); drawDetailHead(); }
  lookAtFeed();
}

const askedAt = (peer) => {
  const moments = [peer.last_sync_sent, peer.last_round?.at].filter((at) => at != null);
  return moments.length ? Math.max(...moments) : null;
};

function roundText(round) {
  if (round == null) return "";
  const found = round.differences == null ? "" : `, ${whole.format(round.differences)} differed`;
  const symbols = round.symbols ? `, ${whole.format(round.symbols)} symbols` : "";
  return `${round.way}${found}${symbols}, ${bytes(round.bytes)}`;
}

function peerState(peer) {
  if (peer.in_sync === true) return { text: "in sync", mood: "good" };
  const asked = askedAt(peer);
  if (asked == null || (now() - asked < 2 && !(peer.last_new >= asked))) return { text: "asking", mood: "" };
  return peer.last_new != null && peer.last_new >= asked
    ? { text: "receiving", mood: "warn" } : { text: "in sync", mood: "good" };
}

function drawPeers({ peers, total }) {
  fillTable($("peers"), peers.map((peer) => ({
    key: `${peer.id} ${peer.address}`,
    cells: [
      short(peer.key), peer.address, peer.outgoing ? "out" : "in",
      peer.protected ? { text: "yes", mood: "good" } : { text: "no", mood: "warn" },
      peerState(peer), span(now() - peer.since),
      whole.format(peer.values_in), whole.format(peer.values_out), ago(askedAt(peer)),
      roundText(peer.last_round), until(peer.expires),
    ],
  })));
  const last = state.offset + peers.length;
  $("pages").hidden = total <= PAGE_PEERS;
  setText($("shown"), total ? `${whole.format(state.offset + 1)} to ${whole.format(last)} of ${whole.format(total)}` : "");
  $("before").disabled = state.offset === 0;
  $("after").disabled = last >= total;
}

let looking = 0;
async function lookAtFeed() {
  const key = state.chosen;
  clearTimeout(looking);
  if (key == null) return;
  try {
    const [peers, { members }] = await Promise.all([
      ask(`/v1/peers?feed=${key}&offset=${state.offset}&limit=${PAGE_PEERS}`), ask(`/v1/feeds/${key}/members`),
    ]);
    if (key !== state.chosen) return;
    if (state.offset > 0 && state.offset >= peers.total) {
      // The peers of this page have gone.
      state.offset = PAGE_PEERS * Math.max(0, Math.ceil(peers.total / PAGE_PEERS) - 1);
      lookAtFeed();
      return;
    }
    drawPeers(peers);
    const shape = JSON.stringify(members);
    if (shape !== state.shape) { state.shape = shape; state.members = members; drawGraph(); }
  } catch (error) {
    if (error instanceof NoSession) return;
  }
  clearTimeout(looking);
  looking = setTimeout(lookAtFeed, FEED_SECONDS * 1000);
}

// The graph of trust: a tree that grows to the right and down, a row for each member, so that it is
// read from its root on a narrow screen, too. Who introduces many shows the first of them, those
// that are connected before the others, and a row for the rest.

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
    const most = state.expanded.has(member.key) ? below.length : CHILDREN_SHOWN;
    for (const one of below.slice(0, most)) place(one, depth + 1, node);
    const more = below.length - most;
    if (more > 0) placed.push({ more, of: member.key, depth: depth + 1, parent: node, row: row++ });
    return node;
  };
  const root = members.find((one) => one.introduced_by == null);
  if (root) place(root, 0, null);
  return { placed, rows: row };
}

function svgMake(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text != null) node.textContent = text;
  return node;
}

function drawGraph() {
  // On a feed that the node owns it goes by the feed's key.
  const shown = state.frame?.status.feeds.find((feed) => feed.key === state.chosen);
  const own = shown?.owner ? shown.key : state.frame?.status.public_key;
  const { placed, rows } = layOut(state.members, own);
  const deepest = placed.reduce((most, node) => Math.max(most, node.depth), 0);
  const step = $("graph-box").clientWidth < 600 ? 22 : 56;
  const x = (node) => 12 + node.depth * step;
  const y = (node) => 14 + node.row * 26;
  const [width, height] = [12 + deepest * step + 270, rows * 26 + 4];
  const lines = placed.filter((node) => node.parent).map((node) => {
    const [x1, y1, x2, y2] = [x(node.parent), y(node.parent), x(node), y(node)];
    return svgMake("path", { d: `M${x1} ${y1 + 6}V${y2 - 8}Q${x1} ${y2} ${x1 + 8} ${y2}H${x2 - 6}` });
  });
  const nodes = placed.map((node) => (node.more ? drawMore(node, x(node), y(node)) : drawMember(node, own, x(node), y(node))));
  const graph = $("graph");
  graph.setAttribute("width", width);
  graph.setAttribute("height", height);
  graph.setAttribute("viewBox", `0 0 ${width} ${height}`);
  graph.replaceChildren(...lines, ...nodes);
}

function drawMember({ member }, own, x, y) {
  const soon = endsSoon(member.expires);
  const kind = `${member.key === own ? "own" : member.connected ? "on" : "off"}${soon ? " soon" : ""}`;
  const group = svgMake("g", { class: kind });
  const by = member.introduced_by;
  const end = by == null ? "the feed's owner" : `until ${until(member.expires)}`;
  const words = by == null ? "owner" : until(member.expires);
  group.append(
    svgMake("title", {}, by == null ? `${member.key}\n${end}` : `${member.key}\nintroduced by ${by}\n${end}`),
    svgMake("circle", { cx: x, cy: y, r: 5 }),
    svgMake("text", { x: x + 11, y: y + 4 }, short(member.key)),
    svgMake("text", { x: x + 86, y: y + 4, class: "until" }, member.key === own ? `here, ${words}` : words),
  );
  return group;
}

function drawMore(node, x, y) {
  const group = svgMake("g", { class: "more", tabindex: 0, role: "button" });
  group.append(svgMake("circle", { cx: x, cy: y, r: 5 }), svgMake("text", { x: x + 10, y: y + 4 }, `${whole.format(node.more)} more`));
  const expand = () => { state.expanded.add(node.of); drawGraph(); };
  group.addEventListener("click", expand);
  group.addEventListener("keydown", (event) => { if (event.key === "Enter") expand(); });
  return group;
}

// The session

class NoSession extends Error {}

const headers = () => ({ Authorization: `Bearer ${sessionStorage.getItem(TOKEN)}` });

async function ask(path) {
  const response = await fetch(path, { headers: headers() });
  if (response.status === 401) { showDoor("The session is over."); throw new NoSession(); }
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

async function claim(code) {
  const response = await fetch("/v1/sessions/claim", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }),
  });
  const answer = await response.json();
  if (response.ok) sessionStorage.setItem(TOKEN, answer.token);
  else if (!sessionStorage.getItem(TOKEN)) showDoor(`${answer.detail}.`);
}

function showDoor(why) {
  sessionStorage.removeItem(TOKEN);
  setText($("why"), why);
  $("door").hidden = false;
  $("all").hidden = true;
  showLink("no session", "bad");
}

function showLink(text, mood) {
  setText($("link"), text);
  setClass($("link"), `badge ${mood}`);
}

// The stream: events as text, read by hand, because an EventSource sends no Authorization.
async function follow() {
  const response = await fetch("/v1/live", { headers: headers() });
  if (response.status === 401) { showDoor("The session is over."); throw new NoSession(); }
  if (!response.ok) throw new Error(String(response.status));
  $("door").hidden = true;
  $("all").hidden = false;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    // Where several have come together, only the newest is worth drawing.
    const data = events.findLast((event) => event.startsWith("event: node"))?.split("\ndata: ")[1];
    if (data) { draw(JSON.parse(data)); showLink("live", "good"); }
  }
}

async function main() {
  const code = location.hash.slice(1);
  if (code) {
    history.replaceState(null, "", location.pathname);
    await claim(code);
  }
  if (!sessionStorage.getItem(TOKEN)) {
    if ($("door").hidden) showDoor("");
    return;
  }
  let wait = 1;
  for (;;) {
    try {
      await follow();
      wait = 1;
    } catch (error) {
      if (error instanceof NoSession) return;
    }
    showLink("lost; trying again", "bad");
    await new Promise((resume) => { setTimeout(resume, wait * 1000); });
    wait = Math.min(15, wait * 2);
  }
}

$("filter").addEventListener("input", (event) => { state.filter = event.target.value.trim(); if (state.frame) drawFeeds(state.frame); });
$("before").addEventListener("click", () => { state.offset = Math.max(0, state.offset - PAGE_PEERS); lookAtFeed(); });
$("after").addEventListener("click", () => { state.offset += PAGE_PEERS; lookAtFeed(); });
addEventListener("resize", () => { if (state.frame) drawGraph(); });
addEventListener("hashchange", () => location.reload());
main();
