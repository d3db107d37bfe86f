// What the node has seen lately (/v1/history), as small charts and as a table with the same figures.

import { $, make, setText, svgMake } from "./elements.js";
import { NoSession, ask } from "./node_link.js";
import { bytes, now, rate, whole } from "./words.js";

const LOOK_SECONDS = 60;
const SPANS = { hours: 6 * 3600, week: 7 * 86400 };
const [WIDTH, HEIGHT] = [300, 56];
const TABLE_ROWS = 24;

const perSecond = (found) => (series) => series.map((n) => (n == null ? null : n / found.step));
const delay = (seconds) => `${whole.format(Math.round(seconds * 1000))} ms`;
const plain = (n) => whole.format(Math.round(n));
// What is drawn: its name, its figures in an answer, how one of them is said, and whether what
// counts is how it changes; else it is drawn from nought on.
const CHARTS = [
  ["values", (found) => found.feed?.values, plain, true],
  ["arriving", (found) => found.feed && perSecond(found)(found.feed.arrived), rate],
  ["peers", (found) => found.feed?.peers ?? found.peers, plain],
  ["received", (found) => perSecond(found)(found.received_bytes), (n) => `${bytes(n)}/s`],
  ["sent", (found) => perSecond(found)(found.sent_bytes), (n) => `${bytes(n)}/s`],
  ["longest delay", (found) => found.lag_seconds, delay],
  ["store", (found) => found.used_bytes, bytes, true],
  ["disk free", (found) => found.disk_free_bytes, bytes, true],
];
// What changes by less than this part of itself is drawn as a line that is nearly level.
const LEAST_CHANGE = 0.02;

const state = { feed: null, span: "hours", looking: 0, asked: 0 };

/** The parts of a line through the figures, each [x, y]: a gap where the node did not run. */
function lines(at, series, found, [least, most]) {
  const [end, width] = [now(), SPANS[state.span]];
  const x = (moment) => WIDTH * Math.max(0, 1 - (end - moment) / width);
  const y = (n) => 2 + (HEIGHT - 4) * (1 - (n - least) / (most - least));
  const parts = [];
  let last = null;
  at.forEach((moment, i) => {
    if (series[i] == null) { last = null; return; }
    if (last == null || moment - last > 2.5 * found.step) parts.push([]);
    parts.at(-1).push([x(moment), y(series[i])]);
    last = moment;
  });
  return parts;
}

function axis([least, most], isOfChange) {
  if (!isOfChange) return [0, most || 1];
  const more = Math.max(0, LEAST_CHANGE * most - (most - least), 1 - (most - least)) / 2;
  return [least - more, most + more];
}

function drawChart([name, figures, say, isOfChange], found) {
  const series = figures(found) ?? [];
  const known = series.filter((n) => n != null);
  const figure = make("figure");
  const caption = make("figcaption");
  caption.append(make("span", name), make("strong", known.length ? say(known.at(-1)) : "–"));
  figure.append(caption);
  if (!known.length) return figure;
  const range = [Math.min(...known), Math.max(...known)];
  const between = say(range[0]) === say(range[1]) ? `always ${say(range[0])}` : `${say(range[0])} to ${say(range[1])}`;
  const svg = svgMake("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${name}: now ${say(known.at(-1))}, ${between}`,
  });
  for (const part of lines(found.at, series, found, axis(range, isOfChange))) {
    if (part.length === 1) part.push([part[0][0] + 0.5, part[0][1]]);
    svg.append(svgMake("path", { d: `M${part.map((point) => point.map((n) => n.toFixed(1)).join(" ")).join("L")}` }));
  }
  figure.append(svg, make("p", between, "soft"));
  return figure;
}

function drawTable(found) {
  const drawn = CHARTS.filter(([, figures]) => figures(found));
  const every = Math.max(1, Math.ceil(found.at.length / TABLE_ROWS));
  const shown = [...found.at.keys()].reverse().filter((_, row) => row % every === 0);
  const head = make("tr");
  for (const name of ["at", ...drawn.map(([name]) => name)]) {
    const cell = make("th", name);
    cell.scope = "col";
    head.append(cell);
  }
  $("history-table").tHead.replaceChildren(head);
  $("history-table").tBodies[0].replaceChildren(...shown.map((i) => {
    const row = make("tr");
    const when = make("th", new Date(found.at[i] * 1000).toLocaleString());
    when.scope = "row";
    row.append(when, ...drawn.map(([name, figures, say]) => {
      const cell = make("td", figures(found)[i] == null ? "–" : say(figures(found)[i]));
      cell.dataset.head = name;
      return cell;
    }));
    return row;
  }));
}

function draw(found) {
  $("charts").replaceChildren(...CHARTS.map((chart) => drawChart(chart, found)));
  drawTable(found);
  const begin = found.at[0];
  const short = begin == null || now() - begin < SPANS[state.span] - 2 * found.step;
  $("history-begin").hidden = !short;
  if (short) setText($("history-begin"), begin == null ? "Nothing is known yet." : `Known since ${new Date(begin * 1000).toLocaleString()}.`);
}

async function look() {
  clearTimeout(state.looking);
  state.looking = setTimeout(look, LOOK_SECONDS * 1000);
  const asked = ++state.asked;
  const feed = state.feed == null ? "" : `&feed=${state.feed}`;
  try {
    const found = await ask(`/v1/history?span=${state.span}${feed}`);
    if (asked === state.asked) draw(found);
  } catch (error) {
    if (error instanceof NoSession) clearTimeout(state.looking);
  }
}

/** Show the history of a feed (its key), and of the node beside it. */
export function showHistory(feed) {
  state.feed = feed;
  look();
}

for (const button of document.getElementsByName("span")) {
  button.addEventListener("change", () => { state.span = button.value; look(); });
}
