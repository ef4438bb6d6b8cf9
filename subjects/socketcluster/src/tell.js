'use strict';
// A process's line to the master: once a second it tells how it is. Where the line ends the process ends, too, so that a
// master that is killed leaves nobody behind, whoever started the process.

const net = require('node:net');

const { healthOf } = require('./health');
const { lineSocket, settings } = require('./settings');

const EVERY_MS = 1000;

// `counts`: what the role has to tell beside its health, by name; `connections` now, `messages` and `pings` so far.
function tell(role, number, counts) {
  // The kernel shows it as the name of the main thread.
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
