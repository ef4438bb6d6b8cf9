// Pictures of the findings behind the answer (verdict_charts.py) as ECharts options. Nothing is computed here but pixels.

/** Returns ratios to the leader: a row for each setting, with a bar for each block, the palest first. */
function race(chart, t, width) {
  const options = base(t);
  const rows = chart.rows;
  const percent = (ratio) => `${ratio < 1 ? "−" : ratio > 1 ? "+" : ""}${round(Math.abs((ratio - 1) * 100))} %`;
  const category = { ...axisStyle(t), type: "category", inverse: true, axisLabel: { ...axisStyle(t).axisLabel, color: t.ink, interval: 0, hideOverlap: false, width: labelRoom(width), overflow: "truncate" } };
  const wide = width > 560;
  const names = { ...category, data: rows.map((row) => row.label) };
  const states = { ...category, position: "right", data: rows.map((row) => row.state), show: wide, axisLabel: { ...category.axisLabel, color: t.muted } };
  return {
    ...options,
    grid: { ...options.grid, top: 26, bottom: 8, right: wide ? 6 : 14 },
    xAxis: { ...axisStyle(t), type: "value", min: chart.span[0], max: chart.span[1], axisLabel: { ...axisStyle(t).axisLabel, formatter: percent, showMinLabel: false, showMaxLabel: false } },
    yAxis: [names, states],
    series: [
      {
        type: "custom",
        name: chart.title,
        clip: true,
        z: 3,
        data: rows.map((row, i) => ({ value: [1, i], row })),
        encode: { x: 0, y: 1 },
        renderItem: (params, api) => raceRow(rows[params.dataIndex], chart, api, t),
        markArea: { silent: true, itemStyle: { color: t.soft, opacity: 0.9 }, label: { show: true, position: "top", color: t.accent, fontSize: 11, formatter: chart.band_label }, data: [[{ xAxis: chart.band[0] }, { xAxis: chart.band[1] }]] },
        markLine: { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: t.accent, width: 1.5, type: "solid" }, data: [{ xAxis: 1 }] },
      },
      { type: "custom", yAxisIndex: 1, silent: true, data: [], renderItem: () => null },
    ],
    tooltip: {
      ...options.tooltip,
      trigger: "axis",
      axisPointer: { type: "none", axis: "y" },
      formatter: (items) => {
        const row = items.find((item) => item.data?.row)?.data.row;
        if (!row) return "";
        const lines = row.bars.map((bar) => [barColour(row, bar, t), `round ${bar.block}: ${bar.text}`]);
        return tip(`${row.setting}: ${row.state}`, lines);
      },
    },
  };
}

const barColour = (row, bar, t) => (row.out && bar === row.bars.at(-1) ? t.bad : row.leads ? t.muted : t.accent);

function raceRow(row, chart, api, t) {
  const [floor, ceiling] = chart.span;
  const last = Math.max(...chart.rows.flatMap((each) => each.bars.map((bar) => bar.block)));
  const bars = row.bars.filter((bar) => bar === row.bars.at(-1) || (last - bar.block) % chart.every === 0);
  const [, middle] = api.coord([1, api.value(1)]);
  const height = api.size([0, 1])[1] * 0.78;
  const step = height / Math.max(bars.length, 1);
  const thick = Math.min(6, Math.max(2, step * 0.6));
  const left = api.coord([floor, 0])[0];
  const right = api.coord([ceiling, 0])[0];
  const shapes = [];
  bars.forEach((bar, k) => {
    const y = middle - height / 2 + (k + 0.5) * step;
    const [from, to] = [bar.low, bar.high].map((ratio) => Math.min(right, Math.max(left, api.coord([ratio, 0])[0])));
    const colour = barColour(row, bar, t);
    const opacity = 0.3 + (0.7 * (k + 1)) / bars.length;
    if (bar.high <= floor || bar.low >= ceiling) {
      // A bar outside the picture becomes an arrow that points to it.
      const [x, away] = bar.high <= floor ? [left + 2, 7] : [right - 2, -7];
      shapes.push({ type: "polygon", shape: { points: [[x, y], [x + away, y - 3.5], [x + away, y + 3.5]] }, style: { fill: colour, opacity } });
      return;
    }
    shapes.push({ type: "rect", shape: { x: from, y: y - thick / 2, width: Math.max(1, to - from), height: thick, r: thick / 2 }, style: { fill: colour, opacity: opacity * 0.75 } });
    // An end that is cut off becomes an arrow too.
    if (bar.low < floor) shapes.push({ type: "polygon", shape: { points: [[left - 1, y], [left + 6, y - 4], [left + 6, y + 4]] }, style: { fill: colour, opacity } });
    if (bar.high > ceiling) shapes.push({ type: "polygon", shape: { points: [[right + 1, y], [right - 6, y - 4], [right - 6, y + 4]] }, style: { fill: colour, opacity } });
    const at = api.coord([bar.value, 0])[0];
    if (at >= left && at <= right) shapes.push({ type: "circle", shape: { cx: at, cy: y, r: thick / 2 + 0.8 }, style: { fill: colour, stroke: t.card, lineWidth: 1, opacity: Math.min(1, opacity + 0.2) } });
  });
  if (row.leads) {
    const x = api.coord([1, 0])[0];
    shapes.push({ type: "polygon", shape: { points: [[x, middle - 7], [x + 7, middle], [x, middle + 7], [x - 7, middle]] }, style: { fill: t.accent, stroke: t.card, lineWidth: 1.5 } });
  }
  return { type: "group", children: shapes };
}

const CROSS = "path://M0,1.5 L1.5,0 L5,3.5 L8.5,0 L10,1.5 L6.5,5 L10,8.5 L8.5,10 L5,6.5 L1.5,10 L0,8.5 L3.5,5 Z";

const UNTIMED = "no response time is known";

/** Returns a row of the tooltip: the percentile that a point stands for, or that there is none. */
function timeRow({ seriesName, value, data }, t) {
  if (seriesName === UNTIMED) return [t.bad, UNTIMED];
  const least = data.mark[`${seriesName}_at_least`] ? "≥ " : "";
  return [seriesName === "p50" ? t.muted : t.accent, `${seriesName} ${least}${brief(...scaled(10 ** value[1]))}`];
}

/** Returns response time against the offered rate: where the constraints held, and where they no longer did. A rate without any
 * time has its mark at the top edge. */
function capacity(chart, t) {
  const options = base(t);
  const colour = { all: t.accent, some: t.accent, none: t.bad };
  const symbol = ({ held }) => ({ symbol: held === "none" ? CROSS : "circle", symbolSize: held === "none" ? 10 : 9, itemStyle: { color: held === "some" ? t.card : colour[held], borderColor: colour[held], borderWidth: held === "none" ? 0 : 2 } });
  // The p50 says what held at a rate whose trials have too few requests for a p99.
  const dots = (key) => chart.marks.filter((mark) => mark[key]).map((mark) => ({
    value: [mark.rate_per_s, Math.log10(mark[key])],
    mark,
    ...(key === "p99_ns" || !mark.p99_ns ? symbol(mark) : { symbol: "circle", symbolSize: 4 }),
  }));
  const times = logAxis(chart.span_ns, duration, t);
  const untimed = chart.marks.filter((mark) => !mark.p50_ns && !mark.p99_ns).map((mark) => ({ value: [mark.rate_per_s, times.max], mark, ...symbol(mark) }));
  const line = (name, key, width, shade) => ({ type: "line", name, data: dots(key), showSymbol: true, z: key === "p99_ns" ? 4 : 3, lineStyle: { color: shade, width }, itemStyle: { color: shade } });
  const limits = chart.limits.map((limit) => ({ yAxis: Math.log10(limit.ns), name: limit.label }));
  return {
    ...options,
    grid: { ...options.grid, top: 30 },
    legend: { top: 0, right: 0, icon: "circle", itemWidth: 9, itemHeight: 9, textStyle: { color: t.ink, fontSize: 12 }, data: ["p50", "p99"] },
    xAxis: { ...axisStyle(t), type: "value", min: 0, name: "offered rate, per second", nameLocation: "middle", nameGap: 28, splitLine: { show: false }, axisLine: { show: true, lineStyle: { color: t.rule } }, axisLabel: { ...axisStyle(t).axisLabel, formatter: round } },
    yAxis: times,
    series: [
      line("p50", "p50_ns", 1.5, t.muted),
      {
        ...line("p99", "p99_ns", 2, t.accent),
        markArea: chart.band ? { silent: true, itemStyle: { color: t.soft, opacity: 0.9 }, label: { show: true, position: "insideTop", color: t.accent, fontSize: 11, formatter: "capacity" }, data: [[{ xAxis: chart.band[0] }, { xAxis: chart.band[1] }]] } : undefined,
        markLine: limits.length ? { silent: true, symbol: "none", lineStyle: { color: t.bad, type: "dashed", width: 1.5 }, label: { show: true, position: "insideStartTop", color: t.bad, fontSize: 11, formatter: (item) => item.name }, data: limits } : undefined,
      },
      { type: "scatter", name: UNTIMED, clip: false, z: 4, itemStyle: { opacity: 1 }, data: untimed },
    ],
    tooltip: {
      ...options.tooltip,
      trigger: "axis",
      axisPointer: { ...options.tooltip.axisPointer, axis: "x", snap: true },
      formatter: (items) => tip(`${brief(items[0].data.mark.rate_per_s, "/s")}: ${items[0].data.mark.text}`, items.map((item) => timeRow(item, t))),
    },
  };
}

/** Returns the colours of thread states by name, so that a state has the same colour in every report. */
function stateColours(t) {
  const [, orange, green, violet, gold, slate] = t.series;
  return {
    "on a CPU": t.accent,
    "waiting for a CPU": t.bad,
    "waiting for a lock or for work": violet,
    "blocked on a socket": green,
    "blocked on a disk": orange,
    "blocked on memory": t.ink,
    "polling for events": gold,
    "blocked on other things": slate,
    asleep: t.rule,
    blocked: t.rule,
  };
}

/** Returns the proposals of rules of thumb, a row for each. The upright line is the answer, the band all equivalent values. */
function rules(chart, t, width) {
  const options = base(t);
  const scale = chart.log ? Math.log10 : (value) => value;
  const colour = { good: t.good, bad: t.bad, "": t.accent };
  const proposed = chart.rows.filter((row) => row.proposal !== null).map((row) => row.proposal);
  const all = [...proposed, ...chart.tried, chart.answer];
  const values = chart.log ? logAxis([Math.min(...all) / 1.3, Math.max(...all) * 1.6], round, t) : { ...axisStyle(t), type: "value", min: 0, max: Math.ceil(Math.max(...all) * 1.25), axisLabel: { ...axisStyle(t).axisLabel, formatter: round } };
  const least = chart.log ? values.min : 0;
  const marks = [
    { xAxis: scale(chart.answer), lineStyle: { color: t.accent, width: 2, type: "solid" }, label: { show: true, formatter: `${chart.factor}=${round(chart.answer)}`, position: "start", color: t.accent, fontSize: 11 } },
  ];
  return {
    ...options,
    grid: { ...options.grid, top: 24, bottom: 30 },
    xAxis: { ...values, name: chart.factor, nameLocation: "middle", nameGap: 26, axisLine: { show: true, lineStyle: { color: t.rule } } },
    yAxis: { ...axisStyle(t), type: "category", inverse: true, data: chart.rows.map((row) => row.name), splitLine: { show: true, lineStyle: { color: t.rule } }, axisLabel: { ...axisStyle(t).axisLabel, color: t.ink, interval: 0 } },
    series: [{
      type: "scatter",
      name: chart.title,
      data: chart.rows.map((row, i) => ({
        value: [row.proposal === null ? least : scale(row.proposal), i],
        row,
        symbol: "diamond",
        symbolSize: row.proposal === null ? 0 : 13,
        itemStyle: { color: colour[row.tone], opacity: 1 },
        label: { show: true, formatter: row.text, position: "right", distance: row.proposal === null ? 6 : 8, color: row.proposal === null ? t.muted : t.ink, backgroundColor: t.card, padding: [1, 2], fontSize: 11.5 },
      })),
      markLine: { symbol: "none", silent: true, data: marks },
      markArea: chart.equal ? { silent: true, itemStyle: { color: t.soft, opacity: 0.9 }, data: [[{ xAxis: scale(chart.equal[0]) }, { xAxis: scale(chart.equal[1]) }]] } : undefined,
      z: 4,
    }, {
      type: "scatter",
      name: "tried",
      silent: true,
      symbol: "rect",
      symbolSize: [1.5, 7],
      symbolOffset: [0, 14],
      itemStyle: { color: t.muted },
      data: chart.tried.map((level) => [scale(level), chart.rows.length - 1]),
    }],
    tooltip: { ...options.tooltip, formatter: (item) => (item.data.row ? tip(item.data.row.name, [[colour[item.data.row.tone], item.data.row.text]]) : "") },
  };
}
