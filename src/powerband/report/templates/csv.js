// Makes the numbers behind each picture into rows for a spreadsheet: all digits, the names of columns first.

const csv = {
  estimates: (chart) => [
    ["setting", "line", "value", "low", "high", "unit", "at_least"],
    ...chart.lines.flatMap((line) => line.points.map((p) => [p.setting, line.name, p.value, p.low, p.high, chart.unit, p.at_least])),
  ],
  stack: (chart) => [
    ["setting", "part", "percent"],
    ...chart.lines.flatMap((line) => line.points.map((p) => [p.setting, line.name, p.value])),
  ],
  race: (chart) => [
    ["setting", "block", "ratio", "low", "high", "then"],
    ...chart.rows.flatMap((row) => row.bars.map((bar) => [row.setting, bar.block, bar.value, bar.low, bar.high, row.state])),
  ],
  capacity: (chart) => [
    ["offered_per_s", "p50_ns", "p50_at_least", "p99_ns", "p99_at_least", "constraints"],
    ...chart.marks.map((mark) => [mark.rate_per_s, mark.p50_ns, mark.p50_at_least, mark.p99_ns, mark.p99_at_least, mark.text]),
  ],
  limits: (chart) => [
    ["setting", "trial", "limit", "counts", "said"],
    ...chart.cells.map((cell) => [cell.setting, cell.number, cell.name, cell.counts, cell.text]),
  ],
  rules: (chart) => [["rule", "proposes", "said"], ...chart.rows.map((row) => [row.name, row.proposal, row.text])],
  surface: (chart) => [
    [...chart.factors.map((factor) => factor.name), "standing", ...chart.measures.flatMap((measure) => [unitName(measure.title, measure.unit), "at_least"])],
    ...chart.cells.map((cell) => [...cell.at.map((level, i) => chart.factors[i].labels[level]), cell.standing, ...cell.values.flatMap((value, i) => [value, cell.at_least[i]])]),
  ],
  trade_offs: (chart) => [
    ["setting", "standing", ...chart.axes.flatMap((axis) => [unitName(axis.title, axis.unit), "low", "high", "at_least"])],
    ...chart.points.map((point) => [point.setting, point.standing, ...chart.axes.flatMap((_, i) => [point.values[i], point.lows[i], point.highs[i], point.at_least[i]])]),
  ],
  distribution: (all, which) => [
    ["setting", "quantile", `${which}_ns`],
    ...all.flatMap((each) => each[which].points.map(([q, ns]) => [each.setting, q, ns])),
  ],
  panel: (tracks) => [
    ["second", ...tracks.map((track) => unitName(track.label || track.panel, track.unit))],
    ...tracks[0].points.map(([s], i) => [s, ...tracks.map((track) => track.points[i]?.[1])]),
  ],
  timeline: (trial) => [["from_s", "to_s", "limit", "words", "proof"], ...trial.limits],
  bars: (picture) => [["from_s", "rate_per_s"], ...JSON.parse(picture.dataset.rates).map((rate, i) => [i * Number(picture.dataset.widthS), rate])],
};

const unitName = (name, unit) => (unit ? `${name} (${unit})` : name);

function csvText(rows) {
  return rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

/** Returns a cell, quoted if needed. A text that looks like a formula gets an apostrophe: names come from files. */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
