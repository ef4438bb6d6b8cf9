// Unpacks the chart library and the data, and draws every picture one after the other, in the order of the page: the answer is
// on the screen, and the page can be scrolled, while the rest is drawn.
"use strict";

async function unpack(id) {
  const text = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const drawn = new Map(); // element -> function that makes its options from a theme and a width
let reportName = "";

/** Draws a picture into an element. `rows`: returns its numbers, to be saved. */
function draw(element, options, { rows }) {
  drawn.set(element, options);
  const chart = echarts.getInstanceByDom(element) ?? echarts.init(element, null, { renderer: "svg" });
  chart.setOption(options(theme(), element.clientWidth), true);
  element.dataset.drawn = "yes";
  offerSaving(element.closest("figure"), rows, () => chartPicture(element, drawn.get(element)));
}

function redraw(element) {
  const chart = echarts.getInstanceByDom(element);
  chart.resize();
  chart.setOption(drawn.get(element)(theme(), element.clientWidth), true);
}

function redrawAll() {
  for (const element of drawn.keys()) redraw(element);
}

function forget(element) {
  echarts.getInstanceByDom(element)?.dispose();
  drawn.delete(element);
}

const makers = { estimates, stack, race, capacity, limits, rules, surface, trade_offs };
const choosers = { surface: surfaceChoosers, trade_offs: tradeOffChoosers };

const nextTask = () => new Promise((resolve) => setTimeout(resolve));

async function drawCharts(data) {
  for (const chart of data.charts) {
    const element = document.getElementById(`chart-${chart.id}`);
    if (!element) continue;
    draw(element, (t, width) => makers[chart.kind](chart, t, width), { rows: () => csv[chart.kind](chart) });
    choosers[chart.kind]?.(chart, () => redraw(element));
    await nextTask();
  }
}

async function start() {
  try {
    const [library, text] = await Promise.all([unpack("packed-charts"), unpack("packed-data")]);
    document.head.append(make("script", {}, library));
    const data = JSON.parse(text);
    reportName = data.name;
    limitTones = data.limit_tones;
    offerExperiment();
    for (const picture of document.querySelectorAll("svg.bars")) offerSaving(picture.closest("figure"), () => csv.bars(picture), () => plainPicture(picture));
    await drawCharts(data);
    drawDistributions(data);
    trialMap(data);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
    addEventListener("beforeprint", redrawAll);
    addEventListener("afterprint", redrawAll);
    let waiting = 0;
    addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(redrawAll, 120);
    });
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    document.documentElement.dataset.ready = "failed";
    for (const element of document.querySelectorAll(".chart")) {
      element.style.height = "auto";
      element.textContent = "This chart needs a browser from 2023 or newer; the same values stand in the table below.";
    }
    throw error;
  }
}

start();
