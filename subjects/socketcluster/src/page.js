'use strict';
// The metrics page: the content of the ledger in Prometheus' text format.

const http = require('node:http');
const os = require('node:os');

const visitor = require('./visitor');

// Metrics of one process: name, type, help, and value; undefined if a role has no such thing.
const OF_A_PROCESS = [
  ['sc_up', 'gauge', 'Whether the process told of itself within the last 3 s', (it) => Number(it.up)],
  ['sc_starts_total', 'counter', 'How often it was started', (it) => it.starts],
  ['sc_cpu_seconds_total', 'counter', 'CPU time of all its threads', (it) => it.cpuS],
  ['sc_resident_bytes', 'gauge', 'Its resident memory', (it) => it.residentBytes],
  ['sc_resident_before_users_bytes', 'gauge', 'The same, before the first user came', (it) => it.bytesBefore],
  ['sc_connections', 'gauge', 'Users connected to it', (it) => it.connections],
  ['sc_messages_total', 'counter', 'Messages received from users; of a balancer: reads; of a broker: publications', messages],
  ['sc_pings_total', 'counter', 'Pings received', (it) => (it.role === 'worker' ? it.pings : undefined)],
  ['sc_event_loop_active_seconds_total', 'counter', 'Time in which its event loop did not wait', (it) => it.activeMs / 1e3],
  ['sc_event_loop_idle_seconds_total', 'counter', 'Time in which its event loop waited', (it) => it.idleMs / 1e3],
  ['sc_event_loop_utilization_ratio', 'gauge', 'Share of the last second that its event loop did not wait', utilization],
  ['sc_event_loop_delay_mean_seconds', 'gauge', 'How late its timers were in the last second, mean', (it) => it.delayMeanMs / 1e3],
  ['sc_event_loop_delay_p99_seconds', 'gauge', 'The same, p99', (it) => it.delayP99Ms / 1e3],
];

// Metrics of all processes of one role.
const OF_A_ROLE = [
  ['sc_processes', 'gauge', 'Processes that are up', (all) => all.filter((it) => it.up).length],
  ['sc_busiest_utilization_ratio', 'gauge', 'Event-loop utilisation of the busiest', (all) => most(all.map(utilization))],
  ['sc_busiest_utilization_peak_ratio', 'gauge', 'Its highest mean over 5 s since the first user', (all) => most(all.map((it) => it.peak))],
  ['sc_latest_delay_p99_seconds', 'gauge', 'How late timers were in the last second, p99 of the latest', (all) => most(all.map((it) => it.delayP99Ms / 1e3))],
];

const OF_WORKERS = [
  ['sc_connections_per_worker_min', 'gauge', 'Users of the worker that has fewest', (all) => least(all.map((it) => it.connections))],
  ['sc_connections_per_worker_max', 'gauge', 'Users of the worker that has most', (all) => most(all.map((it) => it.connections))],
  ['sc_pings_per_worker_min', 'gauge', 'Pings so far of the worker that has fewest', (all) => least(all.map((it) => it.pings))],
  ['sc_pings_per_worker_max', 'gauge', 'Pings so far of the worker that has most', (all) => most(all.map((it) => it.pings))],
];

// Serves the metrics page for every request, except those for the visitor's page and its scripts; resolves once it
// listens.
function serve(ledger, options, host) {
  const server = http.createServer((request, response) => {
    if (visitor.answer(request, response, options)) {
      return;
    }
    response.setHeader('Content-Type', 'text/plain; version=0.0.4');
    response.end(text(ledger.processes()));
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.metricsPort, host, resolve);
  });
}

function text(processes) {
  const roles = byRole(processes);
  const blocks = OF_A_PROCESS.map(([name, type, help, value]) =>
    block(name, type, help, processes.map((it) => [`role="${it.role}",process="${it.number}"`, value(it)])),
  );
  for (const [name, type, help, value] of OF_A_ROLE) {
    blocks.push(block(name, type, help, [...roles].map(([role, all]) => [`role="${role}"`, value(all)])));
  }
  for (const [name, type, help, value] of OF_WORKERS) {
    blocks.push(block(name, type, help, [['', value(roles.get('worker') ?? [])]]));
  }
  blocks.push(block('sc_load_average_1m', 'gauge', 'Load average of the machine over a minute', [['', os.loadavg()[0]]]));
  blocks.push(block('sc_processors', 'gauge', 'CPUs of the machine', [['', os.cpus().length]]));
  return blocks.join('');
}

function block(name, type, help, rows) {
  const told = rows.filter(([, value]) => Number.isFinite(value));
  const lines = told.map(([labels, value]) => `${name}${labels && `{${labels}}`} ${value}\n`);
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`;
}

function messages(it) {
  return it.role === 'worker' || it.role === 'balancer' || it.role === 'broker' ? it.messages : undefined;
}

function utilization(it) {
  return it.up ? it.utilization : undefined;
}

function most(values) {
  return values.reduce((a, b) => (b === undefined || a > b ? a : b), undefined);
}

function least(values) {
  return values.reduce((a, b) => (b === undefined || a < b ? a : b), undefined);
}

function byRole(processes) {
  const roles = new Map();
  processes.forEach((it) => roles.set(it.role, [...(roles.get(it.role) ?? []), it]));
  return roles;
}

module.exports = { serve };
