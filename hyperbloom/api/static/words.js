// How the page says numbers, sizes, times, and what a feed or a key is called.

// What "now" is: the moment of the node's last frame, so that nothing ages while the node is silent.
export const clock = { at: null };

export const whole = new Intl.NumberFormat();
export const bytes = (n) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i += 1; }
  return `${i ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
};
export const span = (seconds) => {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
};
export const now = () => clock.at ?? Date.now() / 1000;
export const ago = (at) => (at == null ? "–" : `${span(now() - at)} ago`);
export const until = (at) => {
  if (at == null) return "no end";
  return at <= now() ? "ended" : `${new Date(at * 1000).toISOString().slice(0, 10)} (${span(at - now())})`;
};
export const short = (key) => `${key.slice(0, 8)}…`;
export const rate = (n) => (n == null ? "–" : n === 0 ? "0/s" : n < 10 ? `${n.toFixed(1)}/s` : `${whole.format(Math.round(n))}/s`);
export const feedName = (feed) => feed.alias ?? (feed.own ? "own" : short(feed.key));
// Who a key belongs to: the name that was given to it here, where there is one.
export const keyName = ({ name, key }) => name ?? short(key);
