// Every trial: the plan as a map of buttons, and the chosen one second by second.

/** Arrows move, Enter, Space or a click chooses. */
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
  for (const element of holder.querySelectorAll(".chart")) forget(element);
  holder.replaceChildren();
  const panels = new Map();
  for (const track of trial?.tracks ?? []) panels.set(track.panel, [...(panels.get(track.panel) ?? []), track]);
  const none = document.getElementById("trial-none");
  none.hidden = panels.size > 0;
  none.textContent = trial
    ? "No time series of this trial was recorded."
    : "The time series of this trial is left out, to keep the page of a long run small; the run directory holds it.";
  const of = button.dataset.title;
  const file = `trial-${button.dataset.trial}`;
  // Drawn once all stand in their places: a lone first panel would be measured as wide as the page.
  const drawings = [];
  if (trial?.limits.length) {
    const figure = trialFigure(of, "What was the limit", "", limitCells(trial));
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

/** The frame of a picture; `cells`: makes the rows of its table, the heads first, when it is opened. */
function trialFigure(of, name, unit, cells) {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const title = document.createElement("h3");
  title.textContent = name;
  title.append(unitNote(unit));
  const note = document.createElement("p");
  note.textContent = of;
  note.hidden = true; // the page says it above; who saves the picture wants it beside it
  caption.append(title, note);
  const element = document.createElement("div");
  element.className = "chart";
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", `${name} over the time of ${of}; the values are in the table below`);
  const foot = document.createElement("div");
  foot.className = "foot no-print";
  foot.append(lazyTable(cells));
  figure.append(caption, element, foot);
  return figure;
}

function unitNote(unit) {
  const note = document.createElement("small");
  note.textContent = unit ? ` ${unit === "/s" ? "per second" : unit}` : "";
  return note;
}

const seriesCells = (tracks) => () => [
  ["time", ...tracks.map((track) => track.label)],
  ...tracks[0].points.map(([s], i) => [brief(s, "s"), ...tracks.map((track) => brief(track.points[i]?.[1], track.unit))]),
];

const limitCells = (trial) => () => [
  ["from", "to", "limit", "proof"],
  ...trial.limits.map(([from, to, , words, proof]) => [brief(from, "s"), brief(to, "s"), words, proof || "–"]),
];

/** The same values as a table, filled when it is opened. */
function lazyTable(cells) {
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = "As a table";
  details.append(summary);
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    const table = document.createElement("table");
    const row = (tag, texts) => {
      const line = document.createElement("tr");
      for (const text of texts) line.append(Object.assign(document.createElement(tag), { textContent: text }));
      return line;
    };
    const [heads, ...rows] = cells();
    table.createTHead().append(row("th", heads));
    table.createTBody().append(...rows.map((texts) => row("td", texts)));
    scroll.append(table);
    details.append(scroll);
  });
  return details;
}
