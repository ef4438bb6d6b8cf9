// The seconds of one trial as plots that grow. In: rows by name. Out: one uPlot for each panel that has anything to show.

import { brief, css, make, ticks } from "./format.js";

const FIXED = [
  { id: "rate", title: "Rate", unit: "per_s", lines: [["rate_per_s", "succeeded"], ["errors_per_s", "failed"]] },
  { id: "response", title: "Response time", unit: "ns", lines: [["response_time_ns_p99", "p99"], ["response_time_ns_p50", "p50"], ["response_time_ns_mean", "mean"]] },
  { id: "cpu", title: "CPU by process", unit: "cores", prefix: "cpu_cores:" },
  { id: "threads", title: "Threads by state", unit: "", prefix: "threads:" },
  { id: "flight", title: "In flight", unit: "", lines: [["in_flight", "requests"], ["users", "users"]] },
  { id: "switches", title: "Context switches", unit: "per_s", lines: [["context_switches_per_s", "of the server"]] },
  { id: "memory", title: "Memory by process", unit: "bytes", prefix: "rss_bytes:" },
];
const PROCESSES = { subject: "server", engine: "load generator" };
const GAUGES = "gauges:";
const GAUGE_PANELS = 12; // arbitrary: more plots than a screen; the page says how many are left out
const LINES = 12; // arbitrary: more cannot be told apart by their colours
const HEIGHT = 180; // px: three rows of plots on a usual screen
const TABLE_ROWS = 240; // four minutes: a table for screen readers, rebuilt each second
const BYTES = Array.from({ length: 50 }, (_, power) => 2 ** power); // between two ticks: whole KiB, MiB, GiB

export class Plots {
  constructor(holder) {
    this.holder = holder;
    this.panels = new Map();
    this.rest = make("p", { className: "rest", hidden: true });
    holder.append(this.rest);
    this.seen = new IntersectionObserver((entries) => this.#turned(entries), { rootMargin: "100px" });
    this.resized = new ResizeObserver(() => this.#resize());
    this.resized.observe(holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#recolour());
    this.begin();
  }

  /** Begins another trial: discards everything. */
  begin() {
    for (const panel of this.panels.values()) this.#remove(panel);
    this.panels.clear();
    this.t = [];
    this.columns = new Map();
    this.phases = {};
    this.rest.hidden = true;
  }

  /** Adds seconds of the trial. `phases`: when each began, in seconds since go. */
  add(points, phases) {
    this.phases = phases;
    for (const point of points) this.#push(point);
    for (const wanted of this.#wanted()) {
      const panel = this.panels.get(wanted.id);
      if (panel && panel.lines.length === wanted.lines.length && panel.more === wanted.more) continue;
      if (panel) this.#remove(panel);
      this.panels.set(wanted.id, this.#build(wanted));
    }
    const left = this.#gauges().size - GAUGE_PANELS;
    this.rest.hidden = left <= 0;
    this.rest.textContent = `${left} more of the server's own series are not drawn.`;
    for (const panel of this.panels.values()) panel.stale = true;
    this.#draw();
  }

  #push(point) {
    for (const name of Object.keys(point)) {
      if (name !== "t_s" && !this.columns.has(name)) this.columns.set(name, new Array(this.t.length).fill(null));
    }
    this.t.push(point.t_s);
    for (const [name, column] of this.columns) column.push(point[name] ?? null);
  }

  /** Returns the panels that have data, each with its lines. */
  #wanted() {
    const found = [];
    for (const panel of FIXED) {
      const lines = panel.lines?.filter(([name]) => this.columns.has(name)) ?? this.#prefixed(panel.prefix).map(spoken);
      if (lines.length) found.push({ ...panel, ...first(lines) });
    }
    for (const [metric, lines] of [...this.#gauges()].slice(0, GAUGE_PANELS)) {
      found.push({ id: `gauge ${metric}`, title: metric, unit: /bytes/.test(metric) && !/bytes\w*_(count|bucket)\b/.test(metric) ? "bytes" : "", ...first(lines) });
    }
    return found;
  }

  /** Returns the server's own series: the lines of each metric. */
  #gauges() {
    const gauges = new Map();
    for (const [name, label] of this.#prefixed(GAUGES)) {
      const metric = label.split("{")[0] + (label.includes("} per second") ? " per second" : "");
      const shown = label.includes("{") ? label.slice(label.indexOf("{")).replace(/ per second$/, "") : label;
      gauges.set(metric, [...(gauges.get(metric) ?? []), [name, shown]]);
    }
    return gauges;
  }

  #prefixed(prefix) {
    return [...this.columns.keys()].filter((name) => name.startsWith(prefix)).map((name) => [name, name.slice(prefix.length)]);
  }

  #build(wanted) {
    const legend = make("ul", { className: "legend" });
    const box = make("div", { className: "plot" });
    const table = make("details", {}, make("summary", { text: "as a table" }));
    const figure = make("figure", { "data-panel": wanted.id }, make("figcaption", {}, make("h3", { text: wanted.title }), legend), box, table);
    const panel = { ...wanted, figure, box, legend, table, visible: false, stale: true, plot: null };
    table.addEventListener("toggle", () => this.#tabulate(panel));
    const order = this.#wanted().map((each) => each.id);
    const after = order.slice(order.indexOf(wanted.id) + 1).map((id) => this.panels.get(id)?.figure).find((each) => each?.isConnected);
    this.holder.insertBefore(figure, after ?? this.rest);
    this.seen.observe(figure);
    this.#legend(panel, null);
    return panel;
  }

  #remove(panel) {
    this.seen.unobserve(panel.figure);
    panel.plot?.destroy();
    panel.figure.remove();
  }

  #turned(entries) {
    for (const entry of entries) {
      const panel = [...this.panels.values()].find((each) => each.figure === entry.target);
      if (panel) panel.visible = entry.isIntersecting;
    }
    this.#draw();
  }

  /** Draws the panels that have changed and are in view, and those that were never drawn. */
  #draw() {
    for (const panel of this.panels.values()) {
      if (panel.stale) this.#legend(panel, null);
      if (panel.stale && panel.table.open) this.#tabulate(panel);
      if (!panel.stale || this.t.length < 2 || (panel.plot && !panel.visible)) continue;
      panel.stale = false;
      const data = [this.t, ...panel.lines.map(([name]) => this.columns.get(name))];
      if (panel.plot) panel.plot.setData(data);
      else panel.plot = new uPlot(this.#options(panel), data, panel.box);
      panel.figure.dataset.drawn = "yes";
    }
  }

  #options(panel) {
    const muted = css("--muted");
    const axis = { stroke: muted, font: `11px ${css("--sans")}`, grid: { stroke: css("--rule"), width: 1 }, ticks: { show: false } };
    return {
      width: panel.box.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: "seconds" }, drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: { time: false }, y: { range: (plot, low, high) => [Math.min(0, low * 1.08), high > 0 ? high * 1.08 : low < 0 ? 0 : 1] } },
      axes: [
        { ...axis, size: 30, values: (plot, values) => values.map((value) => `${value} s`), space: 60 },
        { ...axis, size: room, values: (plot, values) => ticks(values, panel.unit), ...(panel.unit === "bytes" ? { incrs: BYTES } : {}) },
      ],
      series: [{}, ...panel.lines.map((line, i) => ({ stroke: css(`--c${(i % 6) + 1}`), width: 1.75, points: { show: false }, dash: i >= 6 ? [5, 3] : undefined, spanGaps: panel.id === "switches" }))], // of many threads they are not read each second
      hooks: {
        drawClear: [(plot) => this.#window(plot)],
        setCursor: [(plot) => this.#legend(panel, plot.cursor.idx)],
      },
    };
  }

  /** Draws the measured window behind the lines. */
  #window(plot) {
    const begin = this.phases.measure;
    if (begin === undefined) return;
    const end = this.phases.drain ?? this.t.at(-1);
    const { left, width, top, height } = plot.bbox;
    const clamp = (x) => Math.min(left + width, Math.max(left, x));
    const from = clamp(plot.valToPos(begin, "x", true));
    plot.ctx.fillStyle = css("--accent-soft");
    plot.ctx.fillRect(from, top, Math.max(0, clamp(plot.valToPos(end, "x", true)) - from), height);
  }

  /** Shows each line's value under the cursor, or else its last. */
  #legend(panel, index) {
    const place = index ?? this.t.length - 1;
    const rows = panel.lines.map(([name, label], i) => {
      const swatch = make("i", { "aria-hidden": "true", className: i >= 6 ? "dashed" : undefined });
      swatch.style.background = css(`--c${(i % 6) + 1}`);
      return make("li", {}, swatch, make("span", { text: label }), make("b", { text: brief(this.columns.get(name)?.[place], panel.unit) }));
    });
    panel.legend.replaceChildren(...rows, ...(panel.more ? [make("li", { text: `and ${panel.more} more` })] : []));
  }

  #tabulate(panel) {
    panel.table.querySelector(".scroll")?.remove();
    if (!panel.table.open) return;
    const head = make("tr", {}, make("th", { scope: "col", text: "time" }), ...panel.lines.map(([, label]) => make("th", { scope: "col", text: label })));
    const body = make("tbody");
    for (let i = Math.max(0, this.t.length - TABLE_ROWS); i < this.t.length; i++) {
      const cells = panel.lines.map(([name]) => {
        const value = this.columns.get(name)[i];
        return make("td", { text: brief(value, panel.unit), "data-value": value });
      });
      body.append(make("tr", {}, make("th", { scope: "row", text: `${this.t[i]} s` }), ...cells));
    }
    panel.table.append(make("div", { className: "scroll tall", tabindex: 0 }, make("table", {}, make("thead", {}, head), body)));
  }

  #resize() {
    for (const panel of this.panels.values()) {
      if (panel.plot && panel.box.clientWidth) panel.plot.setSize({ width: panel.box.clientWidth, height: HEIGHT });
    }
  }

  #recolour() {
    for (const panel of this.panels.values()) {
      panel.plot?.destroy();
      panel.plot = null;
      panel.stale = true;
    }
    this.#draw();
  }
}

/** Returns the width of an axis with these labels: a letter is about 6.5 px wide. */
function room(plot, labels) {
  return Math.max(58, 16 + 6.5 * Math.max(0, ...(labels ?? []).map((label) => label.length)));
}

/** A line of a process with the word for it: `engine-1` is "load generator-1". */
function spoken([name, label]) {
  return [name, label.replace(/^(subject|engine)(?=-|$)/, (process) => PROCESSES[process])];
}

/** Returns the lines that are drawn, and how many are not. */
function first(lines) {
  return { lines: lines.slice(0, LINES), more: Math.max(0, lines.length - LINES) };
}
