// How feeds, peers and what runs beside them stand, in a word or two and a mood (good, warn, bad or none): the words say it
// all, the colour repeats it.

import { endsSoon } from "./trust_graph.js";
import { bytes, now, span, whole } from "./words.js";

/** How far a feed is, from what a peer told of itself: [here, in all], or null where that is not known. */
function progress(feed, steps) {
  return steps.expected == null ? null : [Math.min(feed.count, steps.expected), steps.expected];
}

/** What is left at the rate of the last minute; nothing where too little has come to say it. */
function remaining([here, all], rate) {
  return rate ? `, about ${span((all - here) / rate)} left` : "";
}

const percent = ([here, all]) => `${Math.floor((100 * here) / all)} %`;

function replicating(feed, steps, rate) {
  const known = progress(feed, steps);
  if (!known) return "replicating, how much is not known";
  if (known[0] === known[1]) return "all known has come; comparing";
  return `${whole.format(known[0])} of ${whole.format(known[1])} (${percent(known)})${remaining(known, rate)}`;
}

export function feedState(feed, steps, rate) {
  if (feed.trust === "none") return { text: "not trusted", mood: "bad" };
  if (feed.trust === "expired") return { text: "link ended", mood: "bad" };
  if (feed.is_full) return { text: "full", mood: "bad" };
  if (steps?.receiving) return { text: replicating(feed, steps, rate), mood: "warn" };
  if (endsSoon(feed.chain_expires)) return { text: `link ends in ${span(feed.chain_expires - now())}`, mood: "warn" };
  if (!steps) return { text: "no peer", mood: feed.problem ? "bad" : "" };
  const all = steps.in_step === steps.peers;
  return { text: all ? "in sync" : `${steps.in_step} of ${steps.peers} in sync`, mood: all ? "good" : "warn" };
}

/** The node in a word or two: its worst feed, and what is wrong with itself before that. */
export function nodeState({ status, steps }, link) {
  if (link !== "live") return { silent: "no answer", lost: "lost", shut: "no session" }[link] ?? link;
  if (status.store_problem) return "store fails";
  const feeds = status.feeds;
  if (feeds.some((feed) => feed.trust === "expired")) return "link ended";
  if (feeds.some((feed) => feed.trust === "none")) return "not trusted";
  if (feeds.some((feed) => feed.is_full)) return "full";
  const busy = feeds.filter((feed) => steps[feed.key]?.receiving);
  if (busy.length) {
    const known = busy.map((feed) => progress(feed, steps[feed.key]));
    if (known.includes(null)) return "replicating";
    return `replicating ${percent(known.reduce(([a, b], [c, d]) => [a + c, b + d]))}`;
  }
  const ends = feeds.filter((feed) => feed.trusted && endsSoon(feed.chain_expires)).map((feed) => feed.chain_expires);
  if (ends.length) return `link ends in ${span(Math.min(...ends) - now())}`;
  const all = Object.values(steps);
  if (!all.length) return "no peer";
  return all.every((one) => one.in_step === one.peers) ? "in sync" : "not in sync";
}

/** An output, an input or a hook: what was to be done is done, is tried again, or waits for somebody. */
export function integrationState({ state, problem, next_run: next }) {
  const again = state === "failing" && next != null ? `, again in ${span(next - now())}` : "";
  const mood = { idle: "good", failing: "bad", held: "bad" }[state] ?? (problem ? "warn" : "");
  return { text: `${state}${again}`, mood };
}

/** The beginning of a feed's digest, or how far it is computed, in a store of an older version. */
export function digestWords({ digest, digest_left: left, count }) {
  return digest === null ? `computed to ${Math.floor((100 * (count - left)) / count)} %` : digest.slice(0, 8);
}

/** How many of a feed's streams nobody between both nodes can read or alter. */
export function protection({ peers, peers_unprotected: bare }) {
  if (!peers) return { text: "–", mood: "" };
  return bare ? { text: `${whole.format(peers - bare)} of ${whole.format(peers)}`, mood: "warn" } : { text: "all", mood: "good" };
}

export const askedAt = (peer) => {
  const moments = [peer.last_sync_sent, peer.last_round?.at].filter((at) => at != null);
  return moments.length ? Math.max(...moments) : null;
};

export function roundWords(round) {
  if (round == null) return "";
  const found = round.differences == null ? "" : `, ${whole.format(round.differences)} differed`;
  const symbols = round.symbols ? `, ${whole.format(round.symbols)} symbols` : "";
  return `${round.way}${found}${symbols}, ${bytes(round.bytes)}`;
}

export function peerState(peer) {
  if (peer.in_sync === true) return { text: "in sync", mood: "good" };
  const asked = askedAt(peer);
  if (asked == null || (now() - asked < 2 && !(peer.last_new >= asked))) return { text: "asking", mood: "" };
  return peer.last_new != null && peer.last_new >= asked
    ? { text: "receiving", mood: "warn" } : { text: "in sync", mood: "good" };
}
