// The settings, the best first: a table that has everything, and a picture of the first of them with their intervals.

import { at, css, make } from "./format.js";
import { drawIntervals } from "./intervals.js";

const DRAWN = 24; // arbitrary: as many bars as fit a screen; the table has all
const NS = "http://www.w3.org/2000/svg";
let shown = null;

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown && draw(shown));
new ResizeObserver(() => shown && draw(shown)).observe(at("ranking-figure"));

export function rank(run) {
  shown = run;
  const judged = run.settings.some((setting) => setting.value !== null);
  const raced = run.settings.some((setting) => setting.looks.length);
  at("ranking-about").textContent = judged
    ? `${run.objective}, ${run.direction === "maximise" ? "more" : "less"} is better; after ${run.judged} trials.${run.race ? ` ${sentence(run.race)}` : ""}`
    : run.settings.length
      ? "The first round is not over: settings are ranked once each has been tried."
      : "There is nothing to rank.";
  const heads = ["setting", run.objective || "objective", "interval", "vs leader", ...run.columns, ...(raced ? ["interval by round"] : []), "trials", "verdict"];
  at("ranking").tHead.replaceChildren(make("tr", {}, ...heads.map((text) => make("th", { scope: "col", text, className: text === "verdict" ? "words" : undefined }))));
  at("ranking").tBodies[0].replaceChildren(...run.settings.map((setting) => row(setting, run, raced)));
  draw(run);
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function row(setting, run, raced) {
  const told = make("td", { className: `words ${tone(setting)}` }, setting.told);
  const why = because(setting);
  if (why) told.append(make("small", { text: why }));
  const spoilt = setting.invalid ? make("small", { text: `${setting.invalid} excluded` }) : "";
  return make(
    "tr",
    { "data-setting": setting.id, className: setting.answer ? "chosen" : setting.left_after_block !== null ? "out" : undefined },
    make("th", { scope: "row", text: setting.id }),
    make("td", { text: setting.text, "data-value": setting.value }),
    make("td", { text: setting.interval }),
    make("td", { text: setting.leads ? "leader" : setting.effect_text }),
    ...run.columns.map((name) => make("td", { text: setting.others[name] ?? "–" })),
    ...(raced ? [make("td", {}, narrowing(setting.looks))] : []),
    make("td", {}, String(setting.trials), spoilt),
    told,
  );
}

/** Returns why a setting is out, and since when, unless the verdict says so. */
function because(setting) {
  if (setting.left_after_block === null || setting.told.startsWith("eliminated")) return setting.because;
  return `eliminated in round ${setting.left_after_block + 1}: ${setting.because}`;
}

function tone(setting) {
  if (!setting.feasible || setting.verdict === "worse") return "bad";
  return setting.leads || setting.told === "equivalent" ? "good" : "unsure";
}

/** Returns a picture of the setting's ratio to the leader: its interval after each block, up to 15 % to both sides of equal. */
function narrowing(looks) {
  const [width, height, reach] = [96, 26, 0.15];
  const box = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "narrowing", role: "img" });
  const y = (ratio) => height / 2 - (Math.max(-reach, Math.min(reach, ratio - 1)) / reach) * (height / 2 - 2);
  box.append(element("line", { x1: 0, x2: width, y1: y(1), y2: y(1), class: "equal" }));
  looks.slice(-12).forEach(([, value, low, high, leads], i, all) => {
    const x = ((i + 0.5) / all.length) * width;
    if (low !== null && high !== null && !leads) box.append(element("line", { x1: x, x2: x, y1: y(low), y2: y(high), class: "range" }));
    box.append(element("circle", { cx: x, cy: y(value), r: 2.2, class: leads ? "leads" : "value" }));
  });
  const last = looks.at(-1);
  box.append(element("title", {}, last ? `after round ${last[0] + 1} at ${(100 * last[1]).toFixed(1)} % of the leader` : "not judged yet"));
  return box;
}

function element(tag, about, text) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(about)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
}

function draw(run) {
  const known = run.settings.filter((setting) => setting.value !== null).slice(0, DRAWN);
  at("ranking-figure").hidden = known.length < 2;
  if (known.length < 2) return;
  const box = at("ranking-chart");
  box.style.height = `${60 + 24 * known.length}px`;
  box.setAttribute("aria-label", `${run.objective} of the first ${known.length} settings with their intervals, as in the table`);
  drawIntervals(box, known.map((setting) => setting.id), [{ name: run.objective, points: known, colours: known.map(colour) }], run.scale);
}

function colour(setting) {
  if (setting.answer) return css("--accent");
  return setting.left_after_block !== null || !setting.feasible ? css("--muted") : css("--c1");
}
