// The status page: what the frames of the stream say, and the chosen feed's peers and members.

import { $, fillFacts, fillTable, make, setClass, setText } from "./elements.js";
import { askedAt, digestWords, feedState, integrationState, nodeState, peerState, protection, roundWords } from "./feed_state.js";
import { showHistory } from "./history.js";
import { NoSession, ask, followNode } from "./node_link.js";
import { drawGraph, endsSoon, showGraph } from "./trust_graph.js";
import { ago, bytes, clock, feedName, keyName, now, rate, short, span, until, whole } from "./words.js";

const PAGE_PEERS = 50;
const FEED_SECONDS = 5;
const MAX_ERRORS = 20;
const OWN_KEY = "its key is the node's own, so whoever knows the node's public key can read it; hyperbloom feed create NAME --from own moves its values";

// frame: the last one, which came at `came` by the browser's clock; link: as node_link.js has it.
const state = {
  frame: null, came: null, link: "connecting", chosen: null, order: null, offset: 0, rates: new Map(), filter: "",
};

// The frame

function noteRates(frame) {
  for (const feed of frame.status.feeds) {
    const last = state.rates.get(feed.key);
    const seconds = last ? frame.at - last.at : 0;
    if (!last) state.rates.set(feed.key, { at: frame.at, seq: feed.top_seq, rate: null, slow: null });
    else if (seconds > 0.5) {
      const fresh = Math.max(0, feed.top_seq - last.seq) / seconds;
      const mix = (before, share) => (before == null ? fresh : share * fresh + (1 - share) * before);
      const smooth = mix(last.rate, 0.6);
      state.rates.set(feed.key, {
        at: frame.at, seq: feed.top_seq, rate: smooth < 0.01 ? 0 : smooth, slow: mix(last.slow, 0.2),
      });
    }
  }
}

// The busiest first, as they were when the page was opened: rows that move cannot be read.
function inOrder(feeds) {
  return [...feeds].sort((a, b) => state.order.get(a.key) - state.order.get(b.key));
}

function noteOrder({ status, steps, busy }) {
  state.order ??= new Map();
  const weight = (feed) => [busy[feed.key] ?? 0, steps[feed.key]?.peers ?? 0, feed.count];
  const compare = (a, b) => a.map((n, i) => b[i] - n).find((n) => n) ?? 0;
  status.feeds.filter((feed) => !state.order.has(feed.key))
    .sort((a, b) => compare(weight(a), weight(b)))
    .forEach((feed) => state.order.set(feed.key, state.order.size));
}

function drawFeeds({ status, steps }) {
  const wanted = state.filter.toLowerCase();
  const feeds = inOrder(status.feeds).filter((f) => feedName(f).toLowerCase().includes(wanted) || f.key.startsWith(wanted));
  fillTable($("feeds"), feeds.map((feed) => ({
    key: feed.key,
    chosen: feed.key === state.chosen,
    cells: [
      feedName(feed), whole.format(feed.count), rate(state.rates.get(feed.key)?.rate), digestWords(feed),
      whole.format(steps[feed.key]?.peers ?? 0), protection(feed), ago(steps[feed.key]?.last_sync), feedState(feed, steps[feed.key], state.rates.get(feed.key)?.slow),
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

// Where there is none, nothing says so: most nodes have none.
function drawIntegrations({ status }) {
  const found = status.integrations;
  $("edges").hidden = found.length === 0;
  fillTable($("integrations"), found.map((one) => ({
    key: `${one.kind} ${one.name}`,
    cells: [
      one.name, one.kind, one.feed ?? "–", integrationState(one), ago(one.last_success), one.target, one.problem ?? "",
    ],
  })));
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
  Object.assign(state, { frame, came: Date.now() });
  clock.at = frame.at;
  noteRates(frame);
  noteOrder(frame);
  const feeds = frame.status.feeds;
  if (!feeds.some((feed) => feed.key === state.chosen)) choose(inOrder(feeds)[0]?.key ?? null);
  for (const part of [drawGlance, drawFeeds, drawIntegrations, drawPool, drawStore, drawDiscovery, drawErrors]) part(frame);
  drawDetailHead();
  drawTitle();
  document.body.dataset.frames = String(Number(document.body.dataset.frames ?? 0) + 1);
}

// The link to the node

const LINKS = {
  connecting: ["connecting", ""], live: ["live", "good"], silent: ["no answer", "bad"], lost: ["lost", "bad"],
  shut: ["no session", "bad"],
};
const TOLD = {
  silent: "The node does not answer: it hangs, or the way to it is cut.",
  lost: "The node cannot be reached. This page tries again every few seconds.",
};

function drawTitle() {
  const name = state.frame && (state.frame.status.name ?? state.frame.status.public_key.slice(0, 8));
  const word = state.frame ? nodeState(state.frame, state.link) : LINKS[state.link][0];
  const title = [word, name, "hyperbloom"].filter((part) => part).join(" · ");
  if (document.title !== title) document.title = title;
}

function drawLink() {
  const [text, mood] = LINKS[state.link];
  setText($("link"), text);
  setClass($("link"), `badge ${mood}`);
  const stale = TOLD[state.link];
  setClass(document.body, stale ? "stale" : "");
  $("stale").hidden = !stale;
  if (stale) setText($("stale-why"), stale);
  drawStaleSince();
  drawTitle();
}

// How old the figures are; the words before it are read out once, and this is not.
function drawStaleSince() {
  if (!TOLD[state.link]) return;
  const old = state.came == null ? "Nothing was shown yet." :
    `What is shown is of ${new Date(state.came).toLocaleTimeString()}, ${span((Date.now() - state.came) / 1000)} ago.`;
  setText($("stale-since"), old);
}

function tell(link, why) {
  state.link = link;
  if (link === "shut") setText($("why"), why);
  $("door").hidden = link !== "shut";
  $("all").hidden = link === "shut" || !state.frame;
  drawLink();
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
  Object.assign(state, { chosen: key, offset: 0 });
  if (state.frame) { drawFeeds(state.frame); drawDetailHead(); }
  lookAtFeed();
  showHistory(key);
}

function drawPeers({ peers, total }) {
  fillTable($("peers"), peers.map((peer) => ({
    key: `${peer.id} ${peer.address}`,
    cells: [
      keyName(peer), peer.address, peer.outgoing ? "out" : "in",
      peer.protected ? { text: "yes", mood: "good" } : { text: "no", mood: "warn" },
      peerState(peer), span(now() - peer.since),
      whole.format(peer.values_in), whole.format(peer.values_out), ago(askedAt(peer)),
      roundWords(peer.last_round), until(peer.expires),
    ],
  })));
  const last = state.offset + peers.length;
  $("no-peers").hidden = total > 0;
  $("peers").hidden = total === 0;
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
    const [peers, { members, invited }] = await Promise.all([
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
    // On a feed that the node owns it goes by the feed's key.
    const { status } = state.frame;
    const owner = status.feeds.find((feed) => feed.key === key)?.owner;
    showGraph(key, owner ? key : status.public_key, members);
    $("invited").hidden = !invited;
    setText($("invited"), `Invited by this node and not seen yet: ${whole.format(invited)}`);
  } catch (error) {
    if (error instanceof NoSession) return;
  }
  clearTimeout(looking);
  looking = setTimeout(lookAtFeed, FEED_SECONDS * 1000);
}

$("filter").addEventListener("input", (event) => { state.filter = event.target.value.trim(); if (state.frame) drawFeeds(state.frame); });
$("before").addEventListener("click", () => { state.offset = Math.max(0, state.offset - PAGE_PEERS); lookAtFeed(); });
$("after").addEventListener("click", () => { state.offset += PAGE_PEERS; lookAtFeed(); });
addEventListener("resize", () => { if (state.frame) drawGraph(); });
addEventListener("hashchange", () => location.reload());
setInterval(drawStaleSince, 1000);
followNode(draw, tell);
