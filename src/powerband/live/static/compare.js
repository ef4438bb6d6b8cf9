// Two runs side by side in one picture; the numbers are those of the table below it.

import { at, css } from "./format.js";
import { intervals } from "./intervals.js";

const data = JSON.parse(at("compare-data").textContent);
const box = at("compare-chart");

function draw() {
  box.style.height = `${70 + 34 * data.settings.length}px`;
  const chart = echarts.getInstanceByDom(box) ?? echarts.init(box, null, { renderer: "svg" });
  chart.resize();
  const groups = data.runs.map((points, i) => ({ name: "AB"[i], points, colours: [css(`--c${i + 1}`)] }));
  chart.setOption(intervals(data.settings, groups, box.clientWidth), true);
  box.dataset.drawn = "yes";
}

if (box) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(draw).observe(box.parentElement);
  draw();
}
document.documentElement.dataset.ready = "yes";
