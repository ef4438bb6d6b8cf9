// Unpacks the chart library and the data, draws what is in view, and lets a reader choose a trial.
"use strict";

async function unpack(id) {
  const text = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const drawn = new Map(); // element -> function that makes its options from a theme

function draw(element, options) {
  drawn.set(element, options);
  const chart = echarts.getInstanceByDom(element) ?? echarts.init(element, null, { renderer: "svg" });
  chart.setOption(options(theme()), true);
  element.dataset.drawn = "yes";
}

function redrawAll() {
  for (const [element, options] of drawn) {
    const chart = echarts.getInstanceByDom(element);
    chart.resize();
    chart.setOption(options(theme()), true);
  }
}

const makers = { estimates, stack, heat, race, capacity };

function drawCharts(data) {
  for (const chart of data.charts) {
    const element = document.getElementById(`chart-${chart.id}`);
    if (element) draw(element, (t) => makers[chart.kind](chart, t));
  }
}

function drawDistributions(data) {
  const element = document.getElementById("chart-distribution");
  if (!element) return;
  const show = () => {
    const which = document.querySelector('input[name="times"]:checked').value;
    // Names stand at the ends of the lines where there is room, else in a key below.
    const longest = Math.max(...data.distributions.map((each) => each.label.length));
    const room = () => element.clientWidth > 560 || longest <= 6;
    draw(element, (t) => {
      document.getElementById("distribution-key").hidden = room();
      key(data.distributions, t);
      return distribution(data.distributions, which, t, room());
    });
  };
  for (const input of document.querySelectorAll('input[name="times"]')) input.addEventListener("change", show);
  show();
}

function key(distributions, t) {
  const names = distributions.map((each, i) => {
    const name = document.createElement("span");
    const swatch = document.createElement("i");
    swatch.style.background = ramp(i, distributions.length, t.dark);
    name.append(swatch, each.setting);
    return name;
  });
  document.getElementById("distribution-key").replaceChildren(...names);
}

/** The plan as a map of buttons: arrows move, Enter, Space or a click chooses. */
function trialMap(data) {
  const buttons = [...document.querySelectorAll(".map button")];
  const trials = new Map(data.trials.map((trial) => [trial.number, trial]));
  const choose = (button) => {
    for (const other of buttons) {
      other.setAttribute("aria-pressed", String(other === button));
      other.tabIndex = other === button ? 0 : -1;
    }
    showTrial(trials.get(Number(button.dataset.trial)), button);
  };
  const move = (button, key) => {
    const row = button.closest("tr");
    const inRow = [...row.querySelectorAll("button")];
    const column = inRow.indexOf(button);
    if (key === "ArrowRight" || key === "ArrowLeft") return inRow[column + (key === "ArrowRight" ? 1 : -1)];
    if (key === "Home") return buttons[0];
    if (key === "End") return buttons.at(-1);
    let next = row;
    do next = key === "ArrowDown" ? next.nextElementSibling : next.previousElementSibling;
    while (next && !next.querySelector("button"));
    const there = next ? [...next.querySelectorAll("button")] : [];
    return there[Math.min(column, there.length - 1)];
  };
  for (const button of buttons) {
    button.addEventListener("click", () => choose(button));
    button.addEventListener("keydown", (event) => {
      if (!["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) return;
      event.preventDefault();
      const next = move(button, event.key);
      if (next) {
        next.focus();
        choose(next);
      }
    });
  }
  const first = buttons.find((button) => button.dataset.first === "yes") ?? buttons[0];
  if (first) choose(first);
}

function showTrial(trial, button) {
  document.getElementById("trial-title").textContent = button.dataset.title;
  document.getElementById("trial-about").textContent = button.dataset.about;
  const why = document.getElementById("trial-why");
  why.textContent = button.dataset.why;
  why.hidden = !button.dataset.why;
  why.className = button.dataset.state === "valid" ? "unsure" : "bad";
  const holder = document.getElementById("trial-panels");
  for (const element of holder.querySelectorAll(".chart")) {
    echarts.getInstanceByDom(element)?.dispose();
    drawn.delete(element);
  }
  holder.replaceChildren();
  const panels = new Map();
  for (const track of trial?.tracks ?? []) panels.set(track.panel, [...(panels.get(track.panel) ?? []), track]);
  const none = document.getElementById("trial-none");
  none.hidden = panels.size > 0;
  none.textContent = trial
    ? "No time series of this trial was recorded."
    : "The time series of this trial is left out, to keep the page of a long run small; the run directory holds it.";
  const boxes = [...panels].map(([name, tracks]) => {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const title = document.createElement("h3");
    title.textContent = name;
    title.append(unitNote(tracks[0].unit));
    caption.append(title);
    const element = document.createElement("div");
    element.className = "chart";
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", `${name} over the time of ${button.dataset.title}; the values are in the table below`);
    figure.append(caption, element, seriesTable(name, tracks));
    holder.append(figure);
    return [element, tracks];
  });
  // Drawn once all stand in their places: a lone first panel would be measured as wide as the page.
  for (const [element, tracks] of boxes) draw(element, (t) => panel(tracks, trial, t));
}

function unitNote(unit) {
  const note = document.createElement("small");
  note.textContent = unit ? ` ${unit === "/s" ? "per second" : unit}` : "";
  return note;
}

/** The same values as a table, filled when it is opened. */
function seriesTable(name, tracks) {
  const details = document.createElement("details");
  details.className = "no-print";
  const summary = document.createElement("summary");
  summary.textContent = "As a table";
  details.append(summary);
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    const table = document.createElement("table");
    const row = (tag, cells) => {
      const line = document.createElement("tr");
      for (const text of cells) line.append(Object.assign(document.createElement(tag), { textContent: text }));
      return line;
    };
    table.createTHead().append(row("th", ["time", ...tracks.map((track) => track.label)]));
    const body = table.createTBody();
    tracks[0].points.forEach(([s], i) => body.append(row("td", [brief(s, "s"), ...tracks.map((track) => brief(track.points[i]?.[1], track.unit))])));
    scroll.append(table);
    details.append(scroll);
  });
  return details;
}

async function start() {
  try {
    const [library, text] = await Promise.all([unpack("packed-charts"), unpack("packed-data")]);
    const script = document.createElement("script");
    script.textContent = library;
    document.head.append(script);
    const data = JSON.parse(text);
    drawCharts(data);
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
