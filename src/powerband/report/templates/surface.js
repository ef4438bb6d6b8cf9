// The response surface (surface.py) and the trade-offs (trade_off_chart.py) as ECharts options. They show what the reader chose
// in the lists above the picture; nothing is computed here but pixels and colours.

const chosen = (id) => Number(document.getElementById(id).value);

function surfaceChoice(chart) {
  const many = chart.factors.length > 2;
  return {
    measure: chosen("surface-measure"),
    across: many ? chosen("surface-across") : chart.first[0],
    up: many ? chosen("surface-up") : chart.first[1],
    held: chart.factors.map((_, i) => (many ? chosen(`surface-held-${i}`) : 0)),
  };
}

/** Returns the cells of the two chosen factors, with all other factors at their chosen values. */
function surfaceCells(chart, choice) {
  const free = (i) => i === choice.across || i === choice.up;
  return chart.cells.filter((cell) => chart.factors.every((_, i) => free(i) || cell.at[i] === choice.held[i]));
}

/** Keeps two lists from showing the same: a list whose choice is taken by the other gets the other's old choice. */
function keepApart(one, other, redraw) {
  const lists = [one, other].map((id) => document.getElementById(id));
  let before = lists.map((list) => list.value);
  lists.forEach((list, i) => {
    list.addEventListener("change", () => {
      if (lists[1 - i].value === list.value) lists[1 - i].value = before[i];
      before = lists.map((each) => each.value);
      redraw();
    });
  });
}

function surfaceChoosers(chart, redraw) {
  const show = () => {
    const choice = surfaceChoice(chart);
    const measure = chart.measures[choice.measure];
    const unit = measure.unit ? `, ${measure.unit === "/s" ? "per second" : measure.unit},` : "";
    const title = document.getElementById(`title-${chart.id}`);
    title.textContent = `${measure.title[0].toUpperCase()}${measure.title.slice(1)}${unit} over ${chart.factors[choice.across].name} and ${chart.factors[choice.up].name}`;
    const held = chart.factors.flatMap((factor, i) => (i === choice.across || i === choice.up ? [] : [`${factor.name}=${factor.labels[choice.held[i]]}`]));
    title.nextElementSibling.textContent = held.length ? `${chart.note} Held: ${held.join(", ")}.` : chart.note;
    chart.factors.forEach((_, i) => {
      const list = document.getElementById(`surface-held-${i}`);
      if (list) list.parentElement.hidden = i === choice.across || i === choice.up;
    });
    redraw();
  };
  if (chart.factors.length > 2) {
    keepApart("surface-across", "surface-up", show);
    chart.factors.forEach((_, i) => document.getElementById(`surface-held-${i}`).addEventListener("change", show));
  }
  document.getElementById("surface-measure").addEventListener("change", show);
  show();
}

/** Returns a colour between pale and strong, `share` of the way, and the ink that is legible on it. */
function strength(share, t) {
  const stops = t.dark ? [[27, 42, 51], [47, 127, 154], [159, 227, 245]] : [[232, 242, 246], [127, 183, 202], [10, 90, 118]];
  const at = Math.min(1, Math.max(0, share)) * 2;
  const [from, to] = at < 1 ? [stops[0], stops[1]] : [stops[1], stops[2]];
  const part = from.map((value, i) => Math.round(value + (to[i] - value) * (at % 1 || (at === 2 ? 1 : 0))));
  const strong = share > (t.dark ? 0.5 : 0.72);
  return { fill: `rgb(${part.join(",")})`, ink: strong ? t.card : t.ink };
}

function surface(chart, t, width) {
  const choice = surfaceChoice(chart);
  const measure = chart.measures[choice.measure];
  const [across, up] = [chart.factors[choice.across], chart.factors[choice.up]];
  const cells = surfaceCells(chart, choice).filter((cell) => cell.values[choice.measure] !== null);
  const values = cells.map((cell) => cell.values[choice.measure]);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const share = (value) => (high === low ? 0.5 : measure.most ? (value - low) / (high - low) : (high - value) / (high - low));
  const options = base(t);
  const category = (factor) => ({ ...axisStyle(t), type: "category", data: factor.labels, name: factor.name, nameLocation: "middle", splitLine: { show: false }, axisLabel: { ...axisStyle(t).axisLabel, interval: 0, color: t.ink, width: 110, overflow: "truncate" } });
  const longest = Math.max(...up.labels.map((label) => label.length));
  const data = cells.map((cell) => ({ value: [cell.at[choice.across], cell.at[choice.up], cell.values[choice.measure]], cell }));
  return {
    ...options,
    grid: { ...options.grid, left: 26, bottom: 34 },
    xAxis: { ...category(across), nameGap: 30 },
    yAxis: { ...category(up), nameGap: Math.min(118, 18 + 7 * longest) },
    series: [{
      type: "custom",
      name: chart.title,
      encode: { x: 0, y: 1 },
      data,
      renderItem: (params, api) => surfaceCell(data[params.dataIndex], choice.measure, share, api, t),
    }],
    tooltip: {
      ...options.tooltip,
      formatter: (item) => tip(item.data.cell.setting, chart.measures.map((each, i) => [i === choice.measure ? t.accent : t.rule, `${each.title} ${item.data.cell.texts[i]}`])),
    },
  };
}

function surfaceCell(item, measure, share, api, t) {
  const [x, y] = api.coord([item.value[0], item.value[1]]);
  const [w, h] = api.size([1, 1]);
  const { standing } = item.cell;
  const look = standing === "look";
  const [bw, bh] = look ? [w * 0.62, h * 0.62] : [w - 4, h - 4];
  const { fill, ink } = strength(share(item.value[2]), t);
  const barred = standing === "not_allowed";
  const text = `${item.cell.at_least[measure] ? "≥ " : ""}${brief(item.value[2], "")}`;
  const fits = bw > 7 * text.length && bh > 14;
  const box = { x: x - bw / 2, y: y - bh / 2, width: bw, height: bh, r: 3 };
  const marked = standing === "answer" ? { stroke: t.ink, lineWidth: 3 } : standing === "equal" ? { stroke: t.ink, lineWidth: 1.5, lineDash: [4, 3] } : {};
  const children = [
    {
      type: "rect",
      shape: box,
      style: { fill: barred ? t.card : fill, ...(barred ? { stroke: t.bad, lineWidth: 1, lineDash: [2, 3] } : marked) },
      textContent: fits ? { type: "text", style: { text, fill: barred ? t.bad : ink, fontSize: 12, fontWeight: standing === "answer" ? 600 : 400 } } : undefined,
      textConfig: { position: "inside" },
    },
  ];
  if (barred) children.push({ type: "line", shape: { x1: box.x + 3, y1: box.y + bh - 3, x2: box.x + bw - 3, y2: box.y + 3 }, style: { stroke: t.bad, opacity: 0.35 }, silent: true });
  return { type: "group", children };
}

function tradeOffChoosers(chart, redraw) {
  keepApart("trade-offs-across", "trade-offs-up", redraw);
}

const tradeOffTitle = (axis) => `${axis.title}${axis.unit ? `, ${axis.unit === "/s" ? "per second" : axis.unit}` : ""}: ${axis.most ? "more" : "less"} is better`;

/** Returns two of the measures against each other, with a point for each setting. */
function trade_offs(chart, t, width) {
  const [a, b] = [chosen("trade-offs-across"), chosen("trade-offs-up")];
  const options = base(t);
  const scales = chart.axes.map((axis) => (axis.log ? Math.log10 : (value) => value));
  const at = (point) => [scales[a](point.values[a]), scales[b](point.values[b])];
  const front = chart.fronts.find((each) => each.pair[0] === Math.min(a, b) && each.pair[1] === Math.max(a, b));
  const unbeaten = chart.points.filter((point) => point.standing === "unbeaten").length;
  const named = (point) => point.mark === "answer" || (point.standing === "unbeaten" && unbeaten <= 24);
  return {
    ...options,
    grid: { ...options.grid, left: 26, right: 22, top: 20, bottom: 34 },
    xAxis: { ...tradeOffAxis(chart, a, t), name: tradeOffTitle(chart.axes[a]), nameGap: 30 },
    yAxis: { ...tradeOffAxis(chart, b, t), name: tradeOffTitle(chart.axes[b]), nameGap: width > 560 ? 52 : 40 },
    series: [
      {
        type: "line",
        name: "front",
        silent: true,
        data: front ? front.points.map((i) => at(chart.points[i])) : [],
        symbol: "none",
        lineStyle: { color: t.accent, width: 1.5, type: "dashed", opacity: 0.7 },
        z: 1,
      },
      tradeOffWhiskers(chart, a, b, scales, t),
      {
        type: "scatter",
        name: "settings",
        z: 4,
        data: chart.points.map((point) => ({ value: at(point), point, ...tradeOffMark(point, point.at_least[a] || point.at_least[b], t), label: { show: named(point), formatter: point.label, position: point.mark === "answer" ? "top" : "right", distance: 7, color: t.ink, fontSize: 11 } })),
        labelLayout: { hideOverlap: true },
      },
    ],
    tooltip: {
      ...options.tooltip,
      formatter: (item) => {
        if (!item.data.point) return "";
        const { point } = item.data;
        return tip(point.setting, [...chart.axes.map((axis, i) => [i === a || i === b ? t.accent : t.rule, `${axis.title} ${point.texts[i]}`]), [t.muted, point.words]]);
      },
    },
  };
}

function tradeOffAxis(chart, place, t) {
  // The range fits the points alone, since one wide interval would press all others together: intervals may leave the picture.
  const values = chart.points.map((point) => point.values[place]);
  const shared = { nameLocation: "middle", axisLine: { show: true, onZero: false, lineStyle: { color: t.rule } } };
  if (chart.axes[place].log) return { ...logAxis(values, round, t), ...shared };
  const style = axisStyle(t);
  return { ...style, ...shared, type: "value", scale: true, boundaryGap: ["12%", "12%"], splitNumber: 4, axisLabel: { ...style.axisLabel, formatter: round } };
}

function tradeOffMark(point, isBound, t) {
  const symbol = isBound ? "triangle" : "circle";
  const ring = { answer: { borderColor: t.ink, borderWidth: 3 }, equal: { borderColor: t.ink, borderWidth: 1.5 }, other: {} }[point.mark];
  const grown = point.mark === "other" ? 0 : 4;
  if (point.standing === "not_allowed") return { symbol: CROSS, symbolSize: 9, itemStyle: { color: t.bad } };
  if (point.standing === "unbeaten") return { symbol, symbolSize: 11 + grown, itemStyle: { color: t.accent, opacity: 1, ...ring } };
  if (point.standing === "close") return { symbol, symbolSize: 9 + grown, itemStyle: { color: t.card, borderColor: t.accent, borderWidth: 2, opacity: 1, ...ring } };
  return { symbol, symbolSize: 7 + grown, itemStyle: { color: t.muted, opacity: point.mark === "other" ? 0.55 : 1, ...ring } };
}

/** Returns the intervals in both directions. */
function tradeOffWhiskers(chart, a, b, scales, t) {
  const ends = (point, place) => [point.lows[place], point.highs[place]].map((end, i) => scales[place](end !== null && (!chart.axes[place].log || end > 0) ? end : point.values[place]));
  return {
    type: "custom",
    name: "intervals",
    silent: true,
    z: 2,
    tooltip: { show: false },
    clip: true,
    encode: { x: 0, y: 1 },
    data: chart.points.map((point) => [scales[a](point.values[a]), scales[b](point.values[b]), ...ends(point, a), ...ends(point, b)]),
    renderItem: (params, api) => {
      const [x, y, left, right, low, high] = [0, 1, 2, 3, 4, 5].map((i) => api.value(i));
      const line = (from, to) => {
        const [[x1, y1], [x2, y2]] = [api.coord(from), api.coord(to)];
        return { type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: t.muted, lineWidth: 1, opacity: 0.38 } };
      };
      return { type: "group", children: [line([left, y], [right, y]), line([x, low], [x, high])] };
    },
  };
}
