// The bottlenecks as ECharts options: trial by trial over a run (limit_lanes.py), and stretch by stretch within a trial.

/** Hue, saturation and lightness of each bottleneck that has a colour, by name, from the table of model/bottlenecks.py. */
let limitTones = {};

/** Returns colours by name, so that a bottleneck has the same colour in every report. */
function limitColours(t) {
  const tones = Object.entries(limitTones);
  const colours = tones.map(([name, [hue, strength, light]]) => [name, `hsl(${hue} ${strength}% ${t.dark ? light + 26 : light}%)`]);
  return { ...Object.fromEntries(colours), none: t.dark ? "#4a515a" : "#b9bdc3", "": t.rule };
}

/** Returns the colour of text on such a colour. */
const onLimit = (name, t) => (name === "" ? t.muted : name === "none" ? t.ink : t.card);

const limitLegend = (names, t) => ({ top: 0, right: 0, icon: "roundRect", itemWidth: 12, itemHeight: 9, textStyle: { color: t.ink, fontSize: 12 }, data: names });

/** Returns a row for each setting, with a field for each of its trials. */
function limits(chart, t, width) {
  const colours = limitColours(t);
  const options = base(t);
  const names = chart.shorts.map(([, short]) => short);
  const category = { ...axisStyle(t), type: "category", splitLine: { show: false } };
  return {
    ...options,
    grid: { ...options.grid, top: 8 + 22 * legendRows(names, width), bottom: 26 },
    legend: limitLegend(names, t),
    xAxis: { ...category, data: Array.from({ length: chart.columns }, (_, i) => String(i + 1)), name: "trials of a setting, in order", nameLocation: "middle", nameGap: 24 },
    yAxis: { ...category, inverse: true, data: chart.rows, axisLabel: { ...category.axisLabel, color: t.ink, interval: 0, hideOverlap: false, width: labelRoom(width), overflow: "truncate" } },
    series: chart.shorts.map(([name, short]) => limitSeries(name, short, chart, colours, t)),
    tooltip: {
      ...options.tooltip,
      formatter: (item) => {
        const [head, ...rest] = item.data.cell.text.split(": ");
        return tip(`${item.data.cell.setting}, ${head}`, rest.join(": ").split("; ").map((text) => [item.color, text]));
      },
    },
  };
}

function limitSeries(name, short, chart, colours, t) {
  const data = chart.cells.filter((cell) => cell.name === name).map((cell) => ({ value: [cell.x, cell.y], cell }));
  return {
    type: "custom",
    name: short,
    itemStyle: { color: colours[name] },
    data,
    renderItem: (params, api) => {
      const [x, y] = api.coord([api.value(0), api.value(1)]);
      const [w, h] = api.size([1, 1]);
      const fits = w - 8 > 6.1 * short.length;
      const box = { x: x - w / 2 + 1, y: y - h * 0.42, width: Math.max(1, w - 2), height: h * 0.84 };
      return field(box, colours[name], fits ? short : "", onLimit(name, t), data[params.dataIndex].cell.counts ? 1 : 0.4);
    },
  };
}

function field(box, fill, text, ink, opacity) {
  return {
    type: "rect",
    shape: { ...box, r: 3 },
    style: { fill, opacity },
    textContent: text ? { type: "text", style: { text, fill: ink, fontSize: 11 } } : undefined,
    textConfig: { position: "inside" },
  };
}

/** Returns one row of fields over the seconds of a trial. */
function timeline(trial, t, width) {
  const colours = limitColours(t);
  const options = base(t);
  const end = lastSecond(trial);
  const names = [...new Map(trial.limits.map(([, , name, words]) => [name, words]))];
  const shade = unmeasured(trial, end);
  return {
    ...options,
    grid: { ...options.grid, left: 14, top: 10 + 20 * legendRows(names.map(([, words]) => words), width), bottom: 8 },
    legend: limitLegend(names.map(([, words]) => words), t),
    xAxis: { ...axisStyle(t), type: "value", min: 0, max: end, splitLine: { show: false }, axisLine: { show: true, lineStyle: { color: t.rule } }, axisLabel: { ...axisStyle(t).axisLabel, formatter: (v) => `${round(v)} s`, showMaxLabel: false } },
    yAxis: { type: "category", data: [""], axisLine: { show: false }, axisTick: { show: false } },
    series: names.map(([name, words], i) => ({
      type: "custom",
      name: words,
      itemStyle: { color: colours[name] },
      encode: { x: [0, 1], y: 2 },
      data: trial.limits.filter((span) => span[2] === name).map((span) => ({ value: [span[0], span[1], 0], span })),
      renderItem: (params, api) => {
        const [from, y] = api.coord([api.value(0), 0]);
        const [to] = api.coord([api.value(1), 0]);
        const h = api.size([0, 1])[1];
        const fits = to - from - 8 > 6.1 * words.length;
        return field({ x: from + 0.5, y: y - h * 0.36, width: Math.max(1, to - from - 1), height: h * 0.72 }, colours[name], fits ? words : "", onLimit(name, t), 1);
      },
      markArea: i === 0 && shade.length ? { silent: true, itemStyle: { color: t.muted, opacity: 0.13 }, label: { show: false }, data: shade } : undefined,
    })),
    tooltip: {
      ...options.tooltip,
      formatter: (item) => {
        const [from, to, , words, proof] = item.data.span;
        return tip(`${atSecond(from)} to ${atSecond(to)}: ${words}`, proof ? proof.split("; ").map((text) => [item.color, text]) : []);
      },
    },
  };
}
