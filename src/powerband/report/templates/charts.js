// Turns chart descriptions (charts.py) into ECharts options. Computes nothing but pixel positions and round ticks.
"use strict";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function theme() {
  return {
    ink: css("--ink"),
    muted: css("--muted"),
    rule: css("--rule"),
    card: css("--card"),
    accent: css("--accent"),
    soft: css("--accent-soft"),
    bad: css("--bad"),
    good: css("--good"),
    series: [1, 2, 3, 4, 5, 6].map((n) => css(`--c${n}`)),
    dark: css("color-scheme") === "dark",
  };
}

/** Returns a colour for the i-th of n ordered things, from gold through green and blue to violet. */
function ramp(i, n, dark) {
  const hue = 42 + (n < 2 ? 150 : (i / (n - 1)) * 245);
  return `hsl(${hue.toFixed(0)} ${dark ? "62% 66%" : "66% 38%"})`;
}

const round = (value) => Number(value.toPrecision(6)).toLocaleString("en-US", { maximumSignificantDigits: 6 });

/** Returns a round duration on a log axis as text: 10000000 is 10 ms. */
function duration(ns) {
  const [value, unit] = scaled(ns);
  return `${round(value)} ${unit}`;
}

function scaled(ns) {
  const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([s]) => ns >= s * 0.9999) ?? [1, "ns"];
  return [ns / size, unit];
}

/** Returns the text of a value of a time series: at most three significant digits, and the unit. */
function brief(value, unit) {
  if (value === null || value === undefined) return "–";
  const text = Number(value.toPrecision(3)).toLocaleString("en-US", { maximumSignificantDigits: 3 });
  return unit ? `${text}${unit.startsWith("/") ? "" : " "}${unit}` : text;
}

/** Returns a point in time of a trial as text, to a tenth of a second: `brief` would round those of a long trial. */
const atSecond = (s) => `${s.toLocaleString("en-US", { maximumFractionDigits: 1 })} s`;

/** Returns an element with attributes and content. It is built of nodes, so that names from files never become markup. */
function make(tag, attributes = {}, ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
}

function tip(head, rows) {
  const lines = rows.map(([colour, text]) => {
    const dot = make("i");
    dot.style.background = colour;
    return make("span", {}, dot, text);
  });
  return make("div", { class: "tip" }, make("b", {}, head), ...lines);
}

function base(t) {
  return {
    animation: false,
    textStyle: { fontFamily: css("--sans"), color: t.ink },
    tooltip: {
      confine: true,
      backgroundColor: t.card,
      borderColor: t.rule,
      textStyle: { color: t.ink },
      extraCssText: "max-width: min(28rem, 80vw); white-space: normal;",
      axisPointer: { type: "line", lineStyle: { color: t.muted, type: "dashed" }, label: { show: false } },
    },
    grid: { left: 6, right: 14, top: 12, bottom: 30, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
  };
}

const axisStyle = (t) => ({
  axisLine: { show: false },
  axisTick: { show: false },
  axisLabel: { color: t.muted, fontSize: 12, hideOverlap: true },
  nameTextStyle: { color: t.muted, fontSize: 12 },
  splitLine: { lineStyle: { color: t.rule } },
});

/** Returns an axis with labels at given positions only. */
function positionAxis(axis, t) {
  const labels = new Map(axis.positions.map((position, i) => [position, axis.labels[i]]));
  const span = axis.positions.at(-1) - axis.positions[0] || 1;
  const sorted = [...axis.positions].sort((a, b) => a - b);
  const margin = axis.ordered ? Math.abs(span) * 0.06 : 0.5;
  const style = axisStyle(t);
  return {
    ...style,
    type: "value",
    name: axis.name,
    nameLocation: "middle",
    nameGap: 28,
    min: sorted[0] - margin,
    max: sorted.at(-1) + margin,
    splitLine: { show: false },
    axisLine: { show: true, onZero: false, lineStyle: { color: t.rule } },
    axisLabel: { ...style.axisLabel, customValues: sorted, formatter: (value) => labels.get(value) ?? "" },
  };
}

function valueAxis(chart, t) {
  if (chart.log_value) return logAxis(chart.lines.flatMap((line) => line.points.flatMap((p) => [p.value, p.low ?? p.value, p.high ?? p.value])), round, t);
  return { ...axisStyle(t), type: "value", min: (extent) => (extent.min < 0 ? null : 0), splitNumber: 4, axisLabel: { ...axisStyle(t).axisLabel, formatter: round } };
}

/** Returns a value axis over log10, so that ticks may be at 1, 2 and 5 and the range may end there. */
function logAxis(values, format, t) {
  const positive = values.filter((value) => value > 0);
  const [low, high] = [Math.min(...positive), Math.max(...positive)];
  const steps = high / low > 300 ? [1] : [1, 2, 5];
  const ticks = [];
  for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade++) {
    for (const step of steps) ticks.push(step * 10 ** decade);
  }
  const first = ticks.findLastIndex((tick) => tick <= low * 1.0001);
  const last = ticks.findIndex((tick) => tick >= high * 0.9999);
  const shown = ticks.slice(Math.max(0, first), last + 1).map(Math.log10);
  const style = axisStyle(t);
  return {
    ...style,
    type: "value",
    min: shown[0],
    max: shown.at(-1),
    axisTick: { show: false, customValues: shown },
    splitLine: { ...style.splitLine, customValues: shown },
    axisLabel: { ...style.axisLabel, customValues: shown, formatter: (value) => format(10 ** value) },
  };
}

/** Returns the width in px beyond which names down the side are cut. */
const labelRoom = (width) => Math.min(230, width * 0.36);

/** Returns a heading above the names down the side; for names of several parts the note has it. */
const namedAbove = (name, t) => ({ name: name.includes(" / ") ? "" : name, nameLocation: "start", nameGap: 8, nameTextStyle: { color: t.muted, fontSize: 12, align: "right", padding: [0, 8, 0, 0] } });

/** Returns points with intervals, joined by a line if the axis has an order. Settings by name are on the vertical axis. */
function estimates(chart, t, width) {
  const flat = chart.flat;
  const scale = chart.log_value ? Math.log10 : (value) => value;
  const place = (point) => (flat ? [scale(point.value), point.x] : [point.x, scale(point.value)]);
  const series = [];
  chart.lines.forEach((line, i) => {
    const colour = t.series[i % t.series.length];
    series.push({
      type: "line",
      name: line.name || chart.title,
      data: line.points.map((point) => ({
        value: place(point),
        point,
        symbol: point.at_least ? "triangle" : "circle",
        symbolSize: point.answer ? 13 : point.equal ? 9 : 7,
        itemStyle: { color: point.answer || point.equal ? colour : t.card, borderColor: colour, borderWidth: 2 },
      })),
      showSymbol: true,
      lineStyle: { color: colour, width: chart.axis.ordered ? 2 : 0 },
      itemStyle: { color: colour },
      z: 3,
      markArea: i === 0 && chart.band ? band(chart, t, flat, scale) : undefined,
    });
    series.push(whiskers(line, colour, flat, scale));
  });
  const position = positionAxis(chart.axis, t);
  if (flat) Object.assign(position, { inverse: true, ...namedAbove(chart.axis.name, t), axisLabel: { ...position.axisLabel, color: t.ink, width: labelRoom(width), overflow: "truncate" } });
  const values = valueAxis(chart, t);
  const legend = chart.lines.length > 1 ? { top: 0, right: 0, icon: "circle", itemWidth: 9, itemHeight: 9, textStyle: { color: t.ink }, data: chart.lines.map((line) => line.name) } : undefined;
  const options = base(t);
  if (legend) options.grid.top = 30;
  if (flat) Object.assign(options.grid, { bottom: 8, top: legend || chart.band || position.name ? 30 : 8 });
  return {
    ...options,
    xAxis: flat ? values : position,
    yAxis: flat ? position : values,
    legend,
    series,
    tooltip: {
      ...options.tooltip,
      trigger: "axis",
      axisPointer: { ...options.tooltip.axisPointer, axis: flat ? "y" : "x", snap: true },
      formatter: (items) => {
        const shown = items.filter((item) => item.data.point);
        const names = [...new Set(shown.map((item) => item.data.point.setting))];
        const rows = shown.map((item) => [t.series[(item.seriesIndex / 2) % t.series.length], `${chart.lines.length > 1 ? `${item.seriesName}: ` : ""}${item.data.point.text}`]);
        return tip(names.join(" / "), rows);
      },
    },
  };
}

/** Returns the range of equally good values on the axis' own scale; a lower end of 0 or less is below a logarithmic one. */
function band(chart, t, flat, scale) {
  const [low, high] = chart.band.map((end) => scale(chart.log_value && end <= 0 ? Number.MIN_VALUE : end));
  return {
    silent: true,
    itemStyle: { color: t.soft, opacity: 0.9 },
    label: { show: !flat, position: "insideTopLeft", color: t.accent, fontSize: 11, formatter: chart.band_label },
    data: [flat ? [{ xAxis: low }, { xAxis: high }] : [{ yAxis: low }, { yAxis: high }]],
  };
}

function whiskers(line, colour, flat, scale) {
  const cap = 4;
  return {
    type: "custom",
    name: line.name,
    silent: true,
    z: 2,
    tooltip: { show: false },
    data: line.points.filter((point) => point.low !== null && point.high !== null && (scale !== Math.log10 || point.low > 0)).map((point) => [point.x, scale(point.low), scale(point.high)]),
    encode: flat ? { x: [1, 2], y: 0 } : { x: 0, y: [1, 2] },
    renderItem: (params, api) => {
      const at = (value) => api.coord(flat ? [value, api.value(0)] : [api.value(0), value]);
      const [ax, ay] = at(api.value(1));
      const [bx, by] = at(api.value(2));
      const [dx, dy] = flat ? [0, cap] : [cap, 0];
      const stroke = { stroke: colour, lineWidth: 1.5, fill: "none" };
      const edge = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: stroke });
      return { type: "group", children: [edge(ax, ay, bx, by), edge(ax - dx, ay - dy, ax + dx, ay + dy), edge(bx - dx, by - dy, bx + dx, by + dy)] };
    },
  };
}

/** Returns shares of a whole, one bar per setting. */
function stack(chart, t, width) {
  const known = stateColours(t);
  const colours = chart.lines.map((line, i) => known[line.name] ?? t.series[i % t.series.length]);
  const options = base(t);
  const lines = legendRows(chart.lines.map((line) => line.name), width);
  return {
    ...options,
    grid: { ...options.grid, top: 28 + 22 * lines, bottom: 8 },
    legend: { top: 0, right: 0, icon: "roundRect", itemWidth: 12, itemHeight: 9, textStyle: { color: t.ink } },
    xAxis: { ...axisStyle(t), type: "value", min: 0, max: 100, axisLabel: { ...axisStyle(t).axisLabel, formatter: (v) => `${v} %` } },
    yAxis: { ...axisStyle(t), type: "category", inverse: true, data: chart.axis.labels, ...namedAbove(chart.axis.name, t), axisLabel: { ...axisStyle(t).axisLabel, color: t.ink, width: labelRoom(width), overflow: "truncate", hideOverlap: false } },
    series: chart.lines.map((line, i) => ({
      type: "bar",
      stack: "all",
      name: line.name,
      barMaxWidth: 18,
      itemStyle: { color: colours[i % colours.length] },
      data: line.points.map((point) => ({ value: [point.value, point.x], point })),
    })),
    tooltip: {
      ...options.tooltip,
      trigger: "axis",
      axisPointer: { type: "none" },
      formatter: (items) => tip(items[0].data.point.setting, items.map((item) => [colours[item.seriesIndex], `${item.seriesName}: ${item.data.point.text}`])),
    },
  };
}

/** Returns how many rows a legend with these names takes, for which the picture below must leave room. A letter is about 6.5 px
 * wide, mark and gap together 34. */
function legendRows(names, width) {
  return Math.ceil(names.reduce((px, name) => px + 34 + 6.5 * name.length, 0) / Math.max(width, 1));
}

/** Returns lines over the seconds of one trial, or stacked bands; everything outside the measured window is shaded. */
function panel(tracks, trial, t, width) {
  const end = lastSecond(trial);
  const shade = unmeasured(trial, end);
  const banded = tracks[0].band === true;
  const known = stateColours(t);
  const colours = tracks.map((track, i) => (banded && known[track.label]) || t.series[i % t.series.length]);
  const unit = tracks[0].unit;
  const top = Math.max(...tracks.flatMap((track) => track.points.map(([, value]) => value ?? 0)));
  const options = base(t);
  return {
    ...options,
    grid: { ...options.grid, top: tracks.length > 1 ? 12 + 18 * legendRows(tracks.map((track) => track.label), width) : 12, bottom: 8 },
    legend: tracks.length > 1 ? { top: 0, right: 0, icon: "circle", itemWidth: 9, itemHeight: 9, textStyle: { color: t.ink, fontSize: 12 } } : undefined,
    xAxis: { ...axisStyle(t), type: "value", min: 0, max: end, splitLine: { show: false }, axisLine: { show: true, lineStyle: { color: t.rule } }, axisLabel: { ...axisStyle(t).axisLabel, formatter: (v) => `${round(v)} s`, showMaxLabel: false } },
    yAxis: { ...valueAxis({ log_value: false }, t), splitNumber: 3, max: unit === "%" && top > 50 && top <= 100 ? 100 : undefined },
    series: tracks.map((track, i) => ({
      type: "line",
      name: track.label,
      data: track.points,
      showSymbol: track.points.length < 3,
      stack: banded ? "all" : undefined,
      areaStyle: banded ? { color: colours[i], opacity: 0.85 } : undefined,
      // Colours that are used a second time are dashed.
      lineStyle: { color: colours[i], width: banded ? 0.5 : 1.8, type: i < t.series.length || banded ? "solid" : "dashed" },
      itemStyle: { color: colours[i] },
      markArea: i === 0 && shade.length ? { silent: true, itemStyle: { color: t.muted, opacity: 0.13 }, label: { color: t.muted, fontSize: 11, position: "insideTop" }, data: shade } : undefined,
    })),
    tooltip: {
      ...options.tooltip,
      trigger: "axis",
      formatter: (items) => tip(`${atSecond(items[0].value[0])} after the start`, items.map((item) => [item.color, `${item.seriesName}: ${brief(item.value[1], unit)}`])),
    },
  };
}

function lastSecond(trial) {
  return Math.max(0, ...trial.tracks.flatMap((track) => track.points.map(([s]) => s)), ...trial.limits.map(([, to]) => to));
}

/** Returns the areas to shade: everything outside the measured window. */
function unmeasured(trial, end) {
  if (!trial.measured_s) return [];
  const [from, to] = trial.measured_s;
  const areas = [];
  if (from > 0) areas.push([{ xAxis: 0, name: "warm-up" }, { xAxis: from }]);
  if (end > to) areas.push([{ xAxis: to, name: "" }, { xAxis: end }]);
  return areas;
}
