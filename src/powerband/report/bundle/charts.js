// Only the chart types and components that the report uses; everything else of ECharts is left out by the bundler.
// SVG: it prints sharply, and a browser can search and select its text.
import { use, init, getInstanceByDom } from "echarts/core";
import { LineChart, BarChart, ScatterChart, CustomChart } from "echarts/charts";
import {
  AriaComponent,
  GridComponent,
  LegendComponent,
  MarkAreaComponent,
  MarkLineComponent,
  TooltipComponent,
} from "echarts/components";
import { LabelLayout } from "echarts/features";
import { SVGRenderer } from "echarts/renderers";

use([
  LineChart,
  BarChart,
  ScatterChart,
  CustomChart,
  AriaComponent,
  GridComponent,
  LegendComponent,
  MarkAreaComponent,
  MarkLineComponent,
  TooltipComponent,
  LabelLayout,
  SVGRenderer,
]);

export { init, getInstanceByDom };
