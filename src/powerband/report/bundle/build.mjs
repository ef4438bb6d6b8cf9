// Writes ../static/echarts.min.js.gz: bundled, minified, gzipped with a fixed header so that the same sources give
// the same bytes. Licence texts of what is inside stay in ../static/NOTICE-echarts.txt. Then copies uPlot, as its
// authors publish it, to the live page.
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const result = await build({
  entryPoints: ["charts.js"],
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "echarts",
  target: "es2020",
  legalComments: "none",
  charset: "utf8",
  write: false,
});

const code = result.outputFiles[0].contents;
const packed = gzipSync(code, { level: 9 });
writeFileSync("../static/echarts.min.js.gz", packed);

const parts = [["Apache ECharts", "echarts"], ["ZRender", "zrender"], ["tslib", "tslib"]].map(([name, folder]) => {
  const { version } = JSON.parse(readFileSync(`node_modules/${folder}/package.json`));
  const text = ["LICENSE", "LICENSE.txt", "NOTICE"].flatMap((file) => {
    try {
      return [readFileSync(`node_modules/${folder}/${file}`, "utf8").trim()];
    } catch {
      return [];
    }
  });
  return `${name} ${version}\n\n${text.join("\n\n")}`;
});
const rule = `\n\n${"=".repeat(80)}\n\n`;
writeFileSync(
  "../static/NOTICE-echarts.txt",
  `echarts.min.js.gz holds parts of the following, bundled by ../bundle/build.mjs.${rule}${parts.join(rule)}\n`,
);
console.log(`${code.length} bytes, ${packed.length} gzipped`);

const live = "../../live/static";
copyFileSync("node_modules/uplot/dist/uPlot.iife.min.js", `${live}/uplot.min.js`);
copyFileSync("node_modules/uplot/dist/uPlot.min.css", `${live}/uplot.min.css`);
const uplot = JSON.parse(readFileSync("node_modules/uplot/package.json"));
const licence = readFileSync("node_modules/uplot/LICENSE", "utf8").trim();
writeFileSync(`${live}/NOTICE-uplot.txt`, `uplot.min.js and uplot.min.css are of uPlot ${uplot.version}.\n\n${licence}\n`);
