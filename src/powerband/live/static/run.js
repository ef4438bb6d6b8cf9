// One run, live: messages of the server in, the page out. Nothing is asked for while nobody looks at it.

import { at, day, duration, make, setNow, since } from "./format.js";
import { nodes, nodesTick, summary } from "./nodes.js";
import { about, mark, offered, onChoice, plan, trialsKnown } from "./plan.js";
import { Plots } from "./plots.js";
import { rank } from "./ranking.js";

const STATUS = { running: "running", finished: "finished", interrupted: "interrupted", stale: "stopped unexpectedly", unreadable: "cannot be read", unknown: "cannot be seen now" };
const PHASES = { starting: "starting", launched: "getting ready", warmup: "warming up", measure: "measuring", drain: "draining", ending: "stopping" };
const LOST_AFTER_MS = 6000; // three times the pause after which a browser connects again (retry: 2000)

const root = document.documentElement;
const plots = new Plots(at("plots"));
let run = null;
let current = null; // the trial in flight
let shown = null; // the number of the trial in the plots; null: none
let chosen = false; // true if a person chose it
let before = 0; // how many of its first seconds are left out
let unread = ""; // why the trial in the plots has no seconds
let left = null; // {eta_s, at}: seconds left, and when that was said
let source = null;
let lost = 0;
let loading = Promise.resolve(); // ends once a trial's seconds are loaded

function connect() {
  if (source || document.hidden) return;
  const stream = (source = new EventSource(`${root.dataset.run}events`));
  stream.onopen = () => {
    clearTimeout(lost);
    warn(null);
  };
  stream.onmessage = (event) => take(JSON.parse(event.data));
  stream.addEventListener("end", async () => {
    source = null;
    warn("lost");
    await loading; // the server waits for those who are still connected
    stream.close();
  });
  stream.onerror = () => {
    if (source !== stream) return; // the stream has said that it ends
    clearTimeout(lost);
    lost = setTimeout(() => warn("lost"), LOST_AFTER_MS);
    if (stream.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    source = null;
    setTimeout(connect, LOST_AFTER_MS);
    refused(stream.url);
  };
}

/** Shows the banner of this id, or none. */
function warn(shown) {
  for (const id of ["lost", "refused"]) at(id).hidden = id !== shown;
}

/** Shows what the server answers at an address that has no stream of events, so that the browser gave up. */
async function refused(url) {
  const answer = await fetch(url, { method: "HEAD" }).catch(() => null);
  if (!answer || answer.ok) return;
  clearTimeout(lost);
  warn("refused");
  at("refused").textContent = `The server is there, but refuses to show this run: ${answer.status} ${answer.statusText}.`;
}

/** Disconnects while the page is hidden, so that it costs the run nothing. */
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return connect();
  source?.close();
  source = null;
});

function take(told) {
  setNow(told.now_s);
  if (told.run) {
    run = told.run;
    head();
    plan(told.trials, run);
    nodes(run, PHASES);
    rank(run);
    mark(shown);
  }
  if ("eta_s" in told) left = { eta_s: told.eta_s, at: Date.now() };
  const was = current?.number;
  if ("current" in told) follow(told.current);
  const over = run.status !== "running";
  if (over) current = null;
  // The last seconds of a trial are written when it is no longer followed.
  if (over && was !== undefined && was === shown) show(trialsKnown.get(was));
  else if (!chosen && !current && (run.nodes.length || shown === null)) showLast();
  tick();
  loading.then(() => (root.dataset.ready = "yes")); // until then the plots push down what is below them
}

function head() {
  const name = run.name;
  document.title = `${run.status === "running" ? "● " : ""}${name} – powerband`;
  const status = at("status");
  status.textContent = STATUS[run.status];
  status.dataset.status = run.status;
  at("report").hidden = run.status === "running" || (run.status === "unreadable" && !run.has_report);
  at("question").textContent = run.question;
  const leader = run.settings.find((setting) => setting.leads);
  const goes = run.status === "running";
  at("answer").textContent = run.because || (goes && leader ? `${leader.id} leads so far.` : run.answer[0] || name);
  at("answer").classList.toggle("long", at("answer").textContent.length > 70);
  at("because").textContent = goes ? run.answer.join(" ") : run.answer.slice(1).join(" ");
  const most = run.at_most ? "at most " : "";
  at("done").textContent = run.planned_total === null ? `${run.done}` : `${run.done} of ${most}${run.planned_total}`;
  at("counts").textContent = [`${run.valid} valid`, run.invalid && `${run.invalid} excluded`, run.failed && `${run.failed} failed`].filter(Boolean).join(", ");
  at("progress").max = Math.max(1, run.planned_total ?? 1);
  at("progress").value = run.done;
  at("began").textContent = run.started_s ? `began ${day(run.started_s)}` : "";
  at("objective").textContent = run.objective ? `${run.direction === "maximise" ? "highest" : "lowest"} ${run.objective}` : "–";
  at("race").textContent = run.race;
  at("warnings").hidden = !run.warnings.length;
  at("warnings").replaceChildren(...run.warnings.map((text) => make("li", { text })));
}

/** Takes in the trial in flight, with its new seconds. */
function follow(trial) {
  current = trial;
  if (!trial || chosen) return;
  if (trial.begin || shown !== trial.number) {
    clear();
    before = trial.points_before;
    shown = trial.number;
    at("plots").dataset.trial = shown;
    mark(shown);
  }
  plots.add(trial.points, trial.phases_s);
}

/** Shows a trial while none is followed: the last valid one of the setting to use, or else of all. */
function showLast() {
  const valid = [...trialsKnown.values()].filter((trial) => trial.outcome === "valid");
  const answer = run.settings.find((setting) => setting.answer)?.id;
  const last = valid.filter((trial) => trial.setting === answer).at(-1) ?? valid.at(-1);
  if (last && last.number !== shown) show(last);
}

onChoice((trial) => {
  chosen = true;
  if (current && trial.number === current.number) return back();
  show(trial);
});

function show(trial) {
  shown = trial.number;
  if (at("plots").dataset.trial !== `${trial.number}`) {
    const { height } = at("plots").getBoundingClientRect();
    clear(); // never show another trial's
    at("plots").style.minHeight = `${height}px`; // what is below stays where it is
  }
  unread = "its seconds are being loaded";
  mark(shown);
  tick();
  loading = load(trial);
}

/** Removes the plots. */
function clear() {
  plots.begin();
  delete at("plots").dataset.trial;
  at("plots").style.minHeight = "";
  before = 0;
  unread = "";
}

async function load(trial) {
  const answer = await fetch(`${root.dataset.run}trials/${trial.number}`).catch(() => null);
  const told = answer?.ok ? await answer.json().catch(() => null) : null;
  if (shown !== trial.number) return;
  if (told === null) {
    at("plots").style.minHeight = "";
    unread = answer ? `its seconds could not be loaded (${answer.status})` : "the live server has stopped";
    return tick();
  }
  clear();
  before = told.points_before;
  plots.add(told.points, told.phases_s);
  at("plots").dataset.trial = trial.number;
  tick();
}

/** Follows the trial in flight again: a new connection sends it from its start. */
function back() {
  chosen = false;
  shown = null;
  clear();
  source?.close();
  source = null;
  connect();
}

at("follow").addEventListener("click", back);

function tick() {
  if (!run) return;
  const goes = run.status === "running";
  if (!goes) at("eta").textContent = run.ended_s ? `ended ${day(run.ended_s)}` : "–";
  else if (left?.eta_s === null || left === null) at("eta").textContent = "–";
  else at("eta").textContent = `${run.at_most && run.blocks === null ? "at most " : "about "}${duration(Math.max(0, left.eta_s - (Date.now() - left.at) / 1000))}`;
  nodesTick();
  const apart = run.nodes.length ? summary() : "between trials";
  at("now").textContent = current ? current.setting + offered(current) : goes ? apart : STATUS[run.status];
  const phase = current ? `trial ${current.number}, ${PHASES[current.phase]}` : "";
  at("phase").textContent = phase && current.phase_began_s ? `${phase} for ${duration(since(current.phase_began_s))}` : phase;
  const trial = trialsKnown.get(shown);
  const here = current && shown === current.number;
  at("series-title").textContent = here ? "Now" : shown === null ? "Now" : `Trial ${shown}`;
  at("series-about").textContent = here
    ? `${current.setting}${offered(current)}, trial ${current.number}, second by second; ${drawn()}.`
    : trial
      ? `${about(trial)}; ${plots.t.length ? drawn() : unread || "its seconds were not recorded"}.`
      : goes
        ? run.nodes.length
          ? "No trial has arrived from its node yet."
          : "The next trial begins in a moment."
        : "Nothing runs at the moment.";
  at("follow").hidden = !(chosen && current && !here);
}

/** Returns what there is to know about the plots. */
function drawn() {
  return `${before ? `its first ${before} s are left out; ` : ""}the measured window is shaded`;
}

setInterval(tick, 1000);
connect();
