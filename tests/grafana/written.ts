// Grafana's types as a JSON file writes them: a value of a string enum is its text there.
// A dashboard that is held against these types literally (`satisfies`) may lack nothing and hold nothing unknown.
import type { Dashboard as GrafanaDashboard } from '@grafana/schema';
import type * as stat from './node_modules/@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as stateTimeline from './node_modules/@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type * as table from './node_modules/@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as timeSeries from './node_modules/@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

export type Written<T> = T extends string
  ? `${T}`
  : T extends Array<infer Item>
    ? Array<Written<Item>>
    : T extends object
      ? { [Key in keyof T]: Written<T[Key]> }
      : T;

export type Dashboard = Written<GrafanaDashboard>;

export interface Options {
  stat: Written<stat.Options>;
  'state-timeline': Written<stateTimeline.Options>;
  table: Written<Partial<table.Options>>;
  timeseries: Written<timeSeries.Options>;
}

export interface Custom {
  'state-timeline': Written<stateTimeline.FieldConfig>;
  table: Written<Partial<table.FieldConfig>>;
  timeseries: Written<timeSeries.FieldConfig>;
}
