// The page's link to its node: the session, the stream of frames, and noticing that no more come.
//
// The node sends a frame every two seconds. Where three of them do not come, it hangs or the way to
// it is cut: what is shown then is old, and the page says so. A node that is gone refuses at once.

const TOKEN = "hyperbloom-session";
const LOOK_SECONDS = 1;
const REST_SECONDS = 4;
// Three frames that did not come.
const SILENT_SECONDS = 6.5;
// A connection this long without a word is made anew: its other end may have forgotten it.
const ANEW_SECONDS = 30;
const LONGEST_WAIT = 5;

export class NoSession extends Error {}

const seconds = () => performance.now() / 1000;
// state: connecting, live, silent (it does not answer), lost (nobody is there) or shut (no session).
const link = { state: "connecting", heard: seconds(), looked: seconds(), rested: 0, stream: null };
let told = () => {};

function become(state, why) {
  if (link.state === state) return;
  link.state = state;
  told(state, why);
}

function hear() {
  link.heard = seconds();
}

// A page that the browser had put to sleep, or lets look once a minute only, has perhaps not read
// yet what came meanwhile: it judges some seconds later, within which a frame is due.
function look() {
  const at = seconds();
  if (at - link.looked > 5 * LOOK_SECONDS) {
    link.rested = at + REST_SECONDS;
    setTimeout(judge, 1000 * REST_SECONDS + 100);
  }
  link.looked = at;
  judge();
}

function judge() {
  const at = seconds();
  if (at < link.rested) return;
  const silence = at - link.heard;
  if (silence > SILENT_SECONDS && (link.state === "live" || link.state === "connecting")) become("silent");
  if (silence > ANEW_SECONDS) connectAnew();
}

function connectAnew() {
  link.stream?.abort();
  hear();
}

const headers = () => ({ Authorization: `Bearer ${sessionStorage.getItem(TOKEN)}` });

function shut(why) {
  sessionStorage.removeItem(TOKEN);
  become("shut", why);
  return new NoSession();
}

function checked(response, path) {
  if (response.status === 401) throw shut("The session is over.");
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response;
}

/** What the node answers to a GET; raises `NoSession`, or another error where it does not. */
export async function ask(path) {
  const signal = AbortSignal.timeout(ANEW_SECONDS * 1000);
  return checked(await fetch(path, { headers: headers(), signal }), path).json();
}

async function claim(code) {
  const response = await fetch("/v1/sessions/claim", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }),
  });
  const answer = await response.json();
  if (response.ok) sessionStorage.setItem(TOKEN, answer.token);
  else if (!sessionStorage.getItem(TOKEN)) shut(`${answer.detail}.`);
}

// Events as text, read by hand, because an EventSource sends no Authorization.
async function follow(draw) {
  link.stream = new AbortController();
  const response = checked(await fetch("/v1/live", { headers: headers(), signal: link.stream.signal }), "/v1/live");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    hear();
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    // Where several have come together, only the newest is worth drawing.
    const data = events.findLast((event) => event.startsWith("event: node"))?.split("\ndata: ")[1];
    if (data) { draw(JSON.parse(data)); become("live"); }
  }
}

/** Follow the node for as long as there is a session: `draw` takes frames, `tell` states. */
export async function followNode(draw, tell) {
  told = tell;
  const code = location.hash.slice(1);
  if (code) {
    history.replaceState(null, "", location.pathname);
    await claim(code);
  }
  if (!sessionStorage.getItem(TOKEN)) return void become("shut", "");
  setInterval(look, LOOK_SECONDS * 1000);
  // A browser that wakes a page up does not go on with what it was reading.
  document.addEventListener("resume", connectAnew);
  hear();
  let wait = 1;
  for (;;) {
    try {
      await follow(draw);
      wait = 1;
    } catch (error) {
      if (error instanceof NoSession) return;
      if (link.state === "live") wait = 1;
    }
    // A stream that was cut because nothing came says no more than before.
    if (!link.stream.signal.aborted) become("lost");
    await new Promise((resume) => { setTimeout(resume, wait * 1000); });
    wait = Math.min(LONGEST_WAIT, wait * 2);
    hear();
    if (link.state === "lost") link.state = "connecting";
  }
}
