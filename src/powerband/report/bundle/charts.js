// Only the chart types and components that the report uses; everything else of ECharts is left out by the bundler.
// SVG: it prints sharply, and a browser can search and select its text.
import { use, init, getInstanceByDom } from "echarts/core";
import { LineChart, BarChart, ScatterChart, HeatmapChart, CustomChart } from "echarts/charts";
import {
  AriaComponent,
  GridComponent,
  LegendComponent,
  MarkAreaComponent,
  MarkLineComponent,
  TooltipComponent,
  VisualMapContinuousComponent,
} from "echarts/components";
import { SVGRenderer } from "echarts/renderers";

use([
  LineChart,
  BarChart,
  ScatterChart,
  HeatmapChart,
  CustomChart,
  AriaComponent,
  GridComponent,
  LegendComponent,
  MarkAreaComponent,
  MarkLineComponent,
  TooltipComponent,
  VisualMapContinuousComponent,
  SVGRenderer,
]);

export { init, getInstanceByDom };
