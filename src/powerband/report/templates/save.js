// Saves a picture as PNG, SVG or CSV, without a network. It is drawn again with its title, wide enough for a slide.

const SAVED_WIDTH = 960; // px, at least
const PNG_SCALE = 2; // sharp in print, and on screens with two pixels per px

/** Adds the buttons under a figure. `rows`: returns its numbers; `picture`: an SVG element with a width and a height. */
function offerSaving(figure, rows, picture) {
  const foot = figure.querySelector(".foot");
  if (!foot) return;
  foot.querySelector(".save")?.remove();
  const title = figure.querySelector("h3")?.textContent ?? "figure";
  const group = make("span", { class: "save", role: "group", "aria-label": `Save “${title}”` }, "Save ");
  const kinds = {
    PNG: async () => download(nameOf(figure, "png"), await png(picture())),
    SVG: () => download(nameOf(figure, "svg"), new Blob([new XMLSerializer().serializeToString(picture())], { type: "image/svg+xml" })),
    CSV: () => download(nameOf(figure, "csv"), new Blob([csvText(rows())], { type: "text/csv" })),
  };
  for (const [name, save] of Object.entries(kinds)) {
    const button = make("button", { type: "button" }, name);
    button.addEventListener("click", save);
    group.append(button);
  }
  foot.append(group);
}

/** Adds a button that saves the experiment, for readers who have only this page. */
function offerExperiment() {
  const source = document.getElementById("experiment");
  if (!source) return;
  const button = make("button", { type: "button", class: "save-file no-print" }, source.dataset.save);
  button.addEventListener("click", () => download(`${runSlug()}.yaml`, new Blob([source.textContent], { type: "application/yaml" })));
  source.before(button);
}

/** Returns a chart, drawn again off the page. */
function chartPicture(element, options) {
  const width = Math.max(SAVED_WIDTH, element.clientWidth);
  const height = Math.max(200, element.clientHeight);
  const holder = document.createElement("div");
  const chart = echarts.init(holder, null, { renderer: "svg", width, height });
  chart.setOption(options(theme(), width), true);
  chart.getZr().flush(); // otherwise it would be drawn only with the next frame
  const inner = holder.querySelector("svg").cloneNode(true);
  chart.dispose();
  inner.removeAttribute("style");
  return framed(element.closest("figure"), inner, width, height);
}

/** Returns a copy of an SVG with its colours, which come from the style sheet that a saved file lacks. */
function plainPicture(picture) {
  const inner = picture.cloneNode(true);
  inner.setAttribute("width", SAVED_WIDTH);
  inner.setAttribute("height", 220);
  for (const bar of inner.querySelectorAll("rect")) bar.setAttribute("fill", css("--accent"));
  return framed(picture.closest("figure"), inner, SAVED_WIDTH, 220);
}

/** Returns the picture with its title above, the report's name below, and its own background. */
function framed(figure, inner, width, height) {
  const t = theme();
  const title = figure.querySelector("h3")?.textContent ?? "";
  const note = figure.querySelector("figcaption p")?.textContent ?? "";
  const head = note ? 62 : 44;
  const node = (name, attributes, text) => element(inner.namespaceURI, name, attributes, text);
  const svg = node("svg", { width, height: height + head + 30, viewBox: `0 0 ${width} ${height + head + 30}`, "font-family": css("--sans") });
  svg.append(node("rect", { width: "100%", height: "100%", fill: t.card }));
  svg.append(node("text", { x: 18, y: 30, "font-size": 17, "font-weight": 600, fill: t.ink }, title));
  if (note) svg.append(node("text", { x: 18, y: 50, "font-size": 12.5, fill: t.muted }, shortened(note, width / 6.4)));
  inner.setAttribute("y", head);
  svg.append(inner);
  svg.append(node("text", { x: width - 16, y: height + head + 20, "font-size": 11, "text-anchor": "end", fill: t.muted }, `${reportName} · powerband`));
  return svg;
}

const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function element(space, name, attributes, text) {
  const made = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function png(svg) {
  const [width, height] = ["width", "height"].map((name) => Number(svg.getAttribute(name)));
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => {
      const canvas = make("canvas", { width: width * PNG_SCALE, height: height * PNG_SCALE });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(resolve, "image/png");
    };
    image.onerror = () => reject(new Error("the picture could not be drawn"));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
  });
}

const slug = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60);

const runSlug = () => slug(reportName) || "powerband";

function nameOf(figure, ending) {
  const parts = [runSlug(), figure.dataset.of, slug(figure.querySelector("h3")?.textContent ?? "") || "figure"];
  return `${parts.filter(Boolean).join("-")}.${ending}`;
}

function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
