// Two runs side by side in one picture; the numbers are those of the table below it.

import { at, css, localTimes } from "./format.js";
import { drawIntervals } from "./intervals.js";

const data = JSON.parse(at("compare-data").textContent);
const box = at("compare-chart");

function draw() {
  box.style.height = `${70 + 34 * data.settings.length}px`;
  const groups = data.runs.map((points, i) => ({ name: "AB"[i], points, colours: [css(`--c${i + 1}`)] }));
  drawIntervals(box, data.settings, groups, data.scale);
}

if (box) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(draw).observe(box.parentElement);
  draw();
}
localTimes(document);
document.documentElement.dataset.ready = "yes";
