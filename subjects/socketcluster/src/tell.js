'use strict';
// A process's line to the master, on which it reports its health once a second. When the line ends, the process ends,
// too, so that a killed master leaves no process behind, whoever started it.

const net = require('node:net');

const { healthOf } = require('./health');
const { lineSocket, settings } = require('./settings');

const EVERY_MS = 1000;

// `counts`: what the role reports in addition to its health, by name: `connections` now, `messages` and `pings` so far.
function tell(role, number, counts) {
  // The kernel shows this as the name of the main thread.
  process.title = `${role}-${number}`;
  const health = healthOf(role, number, counts);
  const line = net.connect(lineSocket(settings().folder));
  const say = () => line.write(`${JSON.stringify(health())}\n`);
  line.on('error', () => process.exit(1));
  line.on('close', () => process.exit(0));
  line.resume();
  say();
  setInterval(say, EVERY_MS);
}

module.exports = { EVERY_MS, tell };
