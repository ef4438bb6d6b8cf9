// The nodes of a run on a cluster, and what each does now. A run on one machine has none, and its page no such part.

import { at, duration, make, since } from "./format.js";
import { offered, ofRound } from "./plan.js";

let told = [];

/** Takes in what the nodes do. `phases`: the words for the phases of a trial. */
export function nodes(run, phases) {
  told = run.nodes;
  at("nodes-part").hidden = !told.length;
  at("nodes-about").textContent = told.length ? `${summary()}. The seconds of a trial arrive from its node once it has ended.` : "";
  at("nodes").tBodies[0].replaceChildren(...told.map((node) => row(node, phases)));
}

/** Returns "3 of 4 nodes run a trial, 1 is lost". */
export function summary() {
  const count = (does) => told.filter((node) => node.does === does).length;
  const rest = ["idle", "lost"].filter(count).map((does) => `${count(does)} ${count(does) === 1 ? "is" : "are"} ${does}`);
  return [`${count("runs")} of ${told.length} nodes run a trial`, ...rest].join(", ");
}

function row(node, phases) {
  const trial = node.trial;
  const from = node.load_from.length ? [make("small", { text: `load from ${node.load_from.join(", ")}` })] : [];
  const name = make("th", { scope: "row", text: node.name }, ...from);
  if (!trial) {
    const why = node.lost ? [make("small", { text: node.lost })] : [];
    return make("tr", { "data-does": node.does, className: node.lost ? "out" : "" }, name, make("td", { text: "–" }), make("td", { text: "–" }), make("td", { className: node.lost ? "words bad" : "words", text: node.does }, ...why));
  }
  const cells = [trial.setting + offered(trial), trial.number + ofRound(trial)].map((text) => make("td", { text }));
  const phase = make("td", { className: "words", "data-began": trial.phase_began_s, "data-phase": phases[trial.phase] });
  return make("tr", { "data-does": node.does }, name, ...cells, phase);
}

/** Updates how long each node has been in its phase. */
export function nodesTick() {
  for (const cell of at("nodes").querySelectorAll("td[data-phase]")) {
    const passed = cell.dataset.began ? ` for ${duration(since(Number(cell.dataset.began)))}` : "";
    cell.textContent = cell.dataset.phase + passed;
  }
}
