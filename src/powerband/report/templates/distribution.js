// Response-time distributions, overlaid. As in HdrHistogram, each further nine takes the same room, and time is logarithmic.

/** Returns percentiles on an axis of nines, one line per setting. */
function distribution(data, which, t, names) {
  const nines = (q) => -Math.log10(1 - q);
  const ticks = new Map([[0, "p0"], [nines(0.5), "p50"], [1, "p90"], [2, "p99"], [3, "p99.9"], [4, "p99.99"], [5, "p99.999"], [6, "p99.9999"]]);
  const last = Math.max(1, ...data.flatMap((d) => d[which].points.map(([q]) => nines(q))));
  const options = base(t);
  return {
    ...options,
    grid: { ...options.grid, right: names ? 14 + 7 * Math.max(...data.map((d) => d.label.length)) : 14 },
    xAxis: {
      ...axisStyle(t), type: "value", min: 0, max: last, name: "percentile of requests", nameLocation: "middle", nameGap: 28,
      axisLine: { show: true, lineStyle: { color: t.rule } },
      axisLabel: { ...axisStyle(t).axisLabel, customValues: [...ticks.keys()].filter((v) => v <= last + 0.01), formatter: (v) => ticks.get(v) ?? "" },
      splitLine: { show: true, lineStyle: { color: t.rule } },
    },
    yAxis: logAxis(data.flatMap((d) => d[which].points.map(([, ns]) => ns)), duration, t),
    series: data.map((d) => ({
      type: "line",
      name: d.setting,
      data: d[which].points.map(([q, ns]) => ({ value: [nines(q), Math.log10(ns)], q, ns })),
      showSymbol: false,
      lineStyle: { color: ramp(d.place, d.of, t.dark), width: d.answer ? 4 : 1.8 },
      itemStyle: { color: ramp(d.place, d.of, t.dark) },
      z: d.answer ? 4 : 2,
      endLabel: names && (data.length <= 14 || d.answer) ? { show: true, formatter: d.label, color: t.ink, fontSize: 11, distance: 4 } : undefined,
      labelLayout: { moveOverlap: "shiftY" },
      emphasis: { focus: "series" },
    })),
    tooltip: {
      ...options.tooltip,
      trigger: "axis",
      formatter: (items) => tip(`p${Number((items[0].data.q * 100).toPrecision(9))}`, items.map((item) => [item.color, `${item.seriesName}: ${brief(...scaled(item.data.ns))}`])),
    },
  };
}

const NAMED_WIDTH = 560; // px; in wider pictures names may stand at the ends of the lines

function drawDistributions(data) {
  const element = document.getElementById("chart-distribution");
  if (!element) return;
  const all = data.distributions.map((each, place) => ({ ...each, place, of: data.distributions.length }));
  const longest = Math.max(...all.map((each) => each.label.length));
  const many = all.some((each) => !each.shown);
  const key = document.getElementById("distribution-key");
  const boxes = toggles(key, all);
  const which = () => document.querySelector('input[name="times"]:checked').value;
  const picked = () => all.filter((_, i) => boxes[i].checked);
  // Names stand at the ends of the lines if there is room; otherwise the key explains the colours.
  const room = (width) => longest <= 6 || (width > NAMED_WIDTH && 7 * longest < width * 0.4);
  const options = (t, width) => {
    key.hidden = !many && room(element.clientWidth);
    boxes.forEach((box, i) => { box.nextElementSibling.style.background = ramp(i, all.length, t.dark); });
    return distribution(picked(), which(), t, room(width));
  };
  const show = () => draw(element, options, { rows: () => csv.distribution(all, which()) });
  for (const input of [...document.querySelectorAll('input[name="times"]'), ...boxes]) input.addEventListener("change", show);
  show();
}

/** Adds a checkbox for each line; the last visible line cannot be switched off. */
function toggles(key, all) {
  return all.map((each) => {
    const box = Object.assign(make("input", { type: "checkbox" }), { checked: each.shown });
    key.append(make("label", {}, box, make("i"), each.setting));
    box.addEventListener("change", (event) => {
      if (key.querySelector("input:checked")) return;
      box.checked = true;
      event.stopImmediatePropagation();
    });
    return box;
  });
}
