'use strict';
// Parses the command line: words become checked options. Throws an Error that names the option for anything else.

const { LOCAL } = require('./settings');

const UNITS_NS = { ns: 1, us: 1e3, ms: 1e6, s: 1e9, m: 6e10, h: 3.6e12 };
const NAMES = ['host', 'port', 'metrics-port', 'version', 'balancers', 'workers', 'brokers', 'payload', 'burn'];

function parse(words) {
  const given = {};
  for (let at = 0; at < words.length; at += 2) {
    const name = words[at].replace(/^--/, '');
    if (!words[at].startsWith('--') || !NAMES.includes(name)) {
      throw new Error(`there is no option ${words[at]}; there are ${NAMES.map((known) => `--${known}`).join(' ')}`);
    }
    if (words[at + 1] === undefined) {
      throw new Error(`--${name} needs a value`);
    }
    given[name] = words[at + 1];
  }
  const version = given.version ?? '14';
  if (version !== '14' && version !== '20') {
    throw new Error(`--version ${version}: there are 14 and 20`);
  }
  return {
    version,
    host: given.host ?? LOCAL,
    port: whole(given, 'port', 8000, 1),
    metricsPort: whole(given, 'metrics-port', 0, 0),
    balancers: whole(given, 'balancers', 1, 0),
    workers: whole(given, 'workers', 1, 1),
    brokers: whole(given, 'brokers', 1, 1),
    payload: whole(given, 'payload', 0, 0),
    burnNs: durationNs(given.burn ?? '0ms'),
  };
}

function whole(given, name, absent, least) {
  const text = given[name] ?? String(absent);
  const number = Number(text);
  if (!/^\d+$/.test(text) || number < least || number > 1e6) {
    throw new Error(`--${name} ${text} is no whole number from ${least} on`);
  }
  return number;
}

function durationNs(text) {
  const match = /^(\d+(?:\.\d+)?)(ns|us|ms|s|m|h)$/.exec(text);
  if (match === null && text !== '0') {
    throw new Error(`--burn ${text} is no duration: write 20us or 1.5ms`);
  }
  return match === null ? 0 : Number(match[1]) * UNITS_NS[match[2]];
}

module.exports = { parse };
