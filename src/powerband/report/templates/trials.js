// Every trial: the plan as a map of buttons, and the chosen trial second by second.

/** Lets arrows, Home, End, Enter, Space or a click choose a trial on the map. */
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
  for (const button of buttons) {
    button.addEventListener("click", () => choose(button));
    button.addEventListener("keydown", (event) => {
      const next = keyTarget(button, event);
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
  for (const element of holder.querySelectorAll(".chart")) forget(element);
  holder.replaceChildren();
  const panels = new Map();
  for (const track of trial?.tracks ?? []) panels.set(track.panel, [...(panels.get(track.panel) ?? []), track]);
  const none = document.getElementById("trial-none");
  none.hidden = panels.size > 0;
  none.textContent = trial ? "No time series of this trial was recorded." : none.dataset.absent;
  const of = button.dataset.title;
  const file = `trial-${button.dataset.trial}`;
  // Panels are drawn once all are in place: a first panel alone would be measured as wide as the page.
  const drawings = [];
  if (trial?.limits.length) {
    const figure = trialFigure(of, "Bottleneck over time", "", limitCells(trial));
    figure.className = "wide";
    figure.dataset.of = file;
    holder.append(figure);
    drawings.push([figure, (t, width) => timeline(trial, t, width), () => csv.timeline(trial)]);
  }
  for (const [name, tracks] of panels) {
    const figure = trialFigure(of, name, tracks[0].unit, seriesCells(tracks));
    figure.dataset.of = file;
    holder.append(figure);
    drawings.push([figure, (t, width) => panel(tracks, trial, t, width), () => csv.panel(tracks)]);
  }
  for (const [figure, options, rows] of drawings) draw(figure.querySelector(".chart"), options, { rows });
}

/** Returns the frame of a picture. `cells`: returns the rows of its table, the heads first, once it is opened. */
function trialFigure(of, name, unit, cells) {
  const inUnit = make("small", {}, unit ? ` ${unit === "/s" ? "per second" : unit}` : "");
  // The page names the trial above its pictures; a saved picture needs the name itself.
  const caption = make("figcaption", {}, make("h3", {}, name, inUnit), make("p", { hidden: "" }, of));
  const element = make("div", { class: "chart", role: "img", "aria-label": `${name} over the time of ${of}; the values are in the table below` });
  return make("figure", {}, caption, element, make("div", { class: "foot no-print" }, lazyTable(cells)));
}

const seriesCells = (tracks) => () => [
  ["time", ...tracks.map((track) => track.label)],
  ...tracks[0].points.map(([s], i) => [atSecond(s), ...tracks.map((track) => brief(track.points[i]?.[1], track.unit))]),
];

const limitCells = (trial) => () => [
  ["from", "to", "bottleneck", "evidence"],
  ...trial.limits.map(([from, to, , words, proof]) => [atSecond(from), atSecond(to), words, proof || "–"]),
];

/** Returns the same values as a table, which is filled when it is opened. */
function lazyTable(cells) {
  const details = make("details", {}, make("summary", {}, "As a table"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const row = (tag, texts) => make("tr", {}, ...texts.map((text) => make(tag, {}, text)));
    const [heads, ...rows] = cells();
    const body = make("tbody", {}, ...rows.map((texts) => row("td", texts)));
    const table = make("table", {}, make("thead", {}, row("th", heads)), body);
    details.append(make("div", { class: "scroll", tabindex: 0 }, table));
  });
  return details;
}
