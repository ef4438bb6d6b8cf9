// Values with their intervals, one below the other, for ECharts: those of one run, or of two side by side.

import { css, make } from "./format.js";

/** Returns horizontal points with whiskers, for one run or two. `points` have value, at_least (it is a lower bound),
 * low, high and text, or are null; `scale`: the divisor and the suffix of the axis; `room`: the width of the whole, in pixels. */
function intervals(names, groups, [size, suffix], room) {
  const [ink, muted, rule, card] = ["--ink", "--muted", "--rule", "--card"].map(css);
  const shift = (i) => (groups.length === 1 ? 0 : i * 9 - 4.5);
  const inUnit = (value) => `${value.toLocaleString("en-US", { maximumSignificantDigits: 6 })}${/^\w/.test(suffix) ? " " : ""}${suffix}`;
  const label = { color: muted, fontSize: 12 };
  return {
    animation: false,
    textStyle: { fontFamily: css("--sans"), color: ink },
    grid: { left: 8, right: 24, top: 10, bottom: 8, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
    xAxis: { type: "value", scale: true, axisLabel: { ...label, hideOverlap: true, formatter: inUnit }, splitLine: { lineStyle: { color: rule } } },
    yAxis: { type: "category", inverse: true, data: names, axisLine: { show: false }, axisTick: { show: false }, axisLabel: { ...label, color: ink, width: Math.min(380, 0.42 * room), overflow: "truncate", interval: 0 } },
    tooltip: {
      trigger: "item",
      confine: true,
      backgroundColor: card,
      borderColor: rule,
      textStyle: { color: ink },
      formatter: (item) => make("div", {}, make("b", { text: names[item.data[0]] }), make("div", { text: `${groups.length > 1 ? `${item.seriesName}: ` : ""}${groups[item.seriesIndex].points[item.data[0]].text}` })),
    },
    series: groups.map((group, g) => ({
      type: "custom",
      name: group.name,
      data: group.points.flatMap((point, i) => (point ? [[i, ...[point.value, point.low ?? point.value, point.high ?? point.value].map((value) => value / size)]] : [])),
      encode: { x: [1, 2, 3], y: 0 },
      renderItem: (params, api) => whisker(api, shift(g), group.colours[api.value(0)] ?? group.colours[0], group.points[api.value(0)].at_least),
    })),
  };
}

/** Draws these groups into an element of the page, and says below it what its triangles are. */
export function drawIntervals(box, names, groups, scale) {
  const chart = echarts.getInstanceByDom(box) ?? echarts.init(box, null, { renderer: "svg" });
  chart.resize();
  chart.setOption(intervals(names, groups, scale, box.clientWidth), true);
  const note = box.nextElementSibling ?? box.parentElement.appendChild(make("p", { className: "lead", text: "Triangles are lower bounds." }));
  note.hidden = !groups.some((group) => group.points.some((point) => point?.at_least));
  box.dataset.drawn = "yes";
}

function whisker(api, dy, stroke, atLeast) {
  const place = (i) => api.coord([api.value(i), api.value(0)]);
  const [[x, y], [low], [high]] = [place(1), place(2), place(3)];
  const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1: y1 + dy, x2, y2: y2 + dy }, style: { stroke, lineWidth: 1.75 } });
  const style = { fill: stroke };
  if (atLeast) return { type: "polygon", shape: { points: [[x, y + dy - 6], [x + 6, y + dy + 5], [x - 6, y + dy + 5]] }, style }; // no interval of it is known
  return {
    type: "group",
    children: [line(low, y, high, y), line(low, y - 4, low, y + 4), line(high, y - 4, high, y + 4), { type: "circle", shape: { cx: x, cy: y + dy, r: 4.5 }, style }],
  };
}
