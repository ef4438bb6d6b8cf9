// The plan as a map: a row for each setting, a column for each block, a button for each trial. Arrows move, Enter shows.

import { keyTarget } from "./arrows.js";
import { at, brief, duration, make } from "./format.js";

/** The purposes of trials, in the order of a run. */
const STAGES = { explore: "first look", screen: "short", saturate: "full load", capacity: "capacity search", compare: "round", confirm: "to confirm", soak: "soak" };
const SIGNS = { running: "●", recorded: "…", invalid: "!", failed: "×", interrupted: "–", lost: "?" };
const WORDS = {
  running: "running",
  recorded: "recorded, not judged yet",
  valid: "valid",
  invalid: "excluded",
  failed: "failed",
  interrupted: "interrupted",
  lost: "begun, but ended without a record",
};
const trials = new Map();
const buttons = new Map();
const cells = new Map(); // by setting, then by column
let choose = () => {};
let layout = "";
let rounds = new Map(); // numbers for readers, by block: a race may leave out blocks of short trials

/** Sets the function that is called with a chosen trial. */
export function onChoice(chosen) {
  choose = chosen;
}

export const trialsKnown = trials;

/** Takes in the trials that have changed. */
export function plan(changed, run) {
  for (const trial of changed) trials.set(trial.number, trial);
  const blocks = [...new Set([...trials.values()].filter(inRound).map((trial) => trial.block))].sort((a, b) => a - b);
  rounds = new Map(blocks.map((block, index) => [block, index + 1]));
  const order = Object.keys(STAGES);
  const inOrder = [...trials.values()].sort((a, b) => order.indexOf(a.stage) - order.indexOf(b.stage) || a.block - b.block);
  const columns = [...new Set(inOrder.map(column))];
  const settings = [...new Set([...run.settings.map((s) => s.id), ...[...trials.values()].map((t) => t.setting)])].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const wanted = JSON.stringify([columns, settings]);
  if (wanted === layout) changed.forEach(place);
  else build(columns, settings);
  layout = wanted;
}

/** Returns the column of a trial: each block has its own, all other trials of one purpose share one. */
function column(trial) {
  return trial.stage === "compare" ? `${STAGES.compare} ${rounds.get(trial.block)}` : STAGES[trial.stage];
}

function inRound(trial) {
  return trial.stage === "screen" || trial.stage === "compare";
}

/** Returns ", round 3" for a trial of a round; otherwise nothing. */
export function ofRound(trial) {
  return inRound(trial) ? `, round ${rounds.get(trial.block)}` : "";
}

/** Returns " at 1,200/s" if the plan sets the rate that is offered in this trial; otherwise nothing. */
export function offered(trial) {
  return trial.rate_per_s === null ? "" : ` at ${brief(trial.rate_per_s, "per_s")}`;
}

function build(columns, settings) {
  const focused = Number(document.activeElement?.dataset.trial);
  buttons.clear();
  cells.clear();
  const head = make("tr", {}, make("th", { scope: "col", text: "setting" }), ...columns.map((text) => make("th", { scope: "col", text })));
  at("plan").tHead.replaceChildren(head);
  at("plan").tBodies[0].replaceChildren(...settings.map((setting) => row(setting, columns)));
  for (const trial of [...trials.values()].sort((a, b) => a.number - b.number)) place(trial);
  buttons.get(focused)?.focus();
}

function row(setting, columns) {
  const mine = new Map(columns.map((text) => [text, make("td")]));
  cells.set(setting, mine);
  return make("tr", { "data-setting": setting }, make("th", { scope: "row", text: setting }), ...mine.values());
}

/** Updates the button of a trial; a new one goes into its cell. */
function place(trial) {
  let button = buttons.get(trial.number);
  if (!button) {
    button = make("button", { type: "button", "data-trial": trial.number, tabindex: buttons.size ? -1 : 0 });
    buttons.set(trial.number, button);
    cells.get(trial.setting).get(column(trial)).append(button);
  }
  button.dataset.outcome = trial.outcome;
  button.textContent = trial.outcome === "valid" ? trial.value_text || "✓" : SIGNS[trial.outcome];
  button.setAttribute("aria-label", about(trial));
  button.title = about(trial);
}

export function about(trial) {
  const again = trial.attempt > 1 ? `, attempt ${trial.attempt}` : "";
  const took = trial.took_s ? `, took ${duration(trial.took_s)}` : "";
  const why = trial.because ? `: ${trial.because}` : trial.value_text ? `: ${trial.value_text}` : "";
  const where = trial.node ? ` on ${trial.node}` : "";
  return `Trial ${trial.number}, ${trial.setting}${offered(trial)}, ${column(trial)}${where}${again}, ${WORDS[trial.outcome]}${took}${why}`;
}

/** Marks the trial that is shown. */
export function mark(number) {
  for (const [each, button] of buttons) {
    button.setAttribute("aria-pressed", String(each === number));
    if (each === number) focusable(button);
  }
}

function focusable(button) {
  at("plan").querySelector('button[tabindex="0"]')?.setAttribute("tabindex", "-1");
  button.tabIndex = 0;
}

at("plan").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) choose(trials.get(Number(button.dataset.trial)));
});
at("plan").addEventListener("keydown", (event) => {
  const button = event.target.closest("button");
  const there = button && keyTarget(button, event);
  if (!there) return;
  focusable(there);
  there.focus();
});
