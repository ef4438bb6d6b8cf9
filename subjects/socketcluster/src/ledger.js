'use strict';
// The ledger of what every process has reported, by role and number. In: lines of JSON. Out: entries. If a process is
// started again, its counters continue from those of the process before it. No process is ever asked or waited for.

const fs = require('node:fs');
const net = require('node:net');
const readline = require('node:readline');

const COUNTERS = ['messages', 'pings', 'activeMs', 'idleMs', 'cpuS'];
const TICKS_PER_S = 100; // the kernel's USER_HZ
const SILENT_AFTER_MS = 3000;
const PEAK_OVER = 5; // records, one a second

class Ledger {
  #entries = new Map();
  #lines = new Set();
  #server;
  #loaded = false;

  // Lets processes connect to this path from now on.
  listen(path) {
    this.#server = net.createServer((line) => this.#read(line));
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(path, resolve);
    });
  }

  // Ends every process's line, and thereby every process.
  close() {
    this.#server.close();
    this.#lines.forEach((line) => line.destroy());
  }

  // Notes one record, as `health.js` makes it.
  note(record) {
    const key = `${record.role} ${record.number}`;
    let entry = this.#entries.get(key);
    if (entry === undefined || entry.now.pid !== record.pid) {
      entry = successor(entry);
      this.#entries.set(key, entry);
    }
    this.#loaded ||= record.role === 'worker' && record.connections > 0;
    if (!this.#loaded || entry.bytesBefore === undefined) {
      entry.bytesBefore = record.residentBytes;
    }
    if (this.#loaded) {
      entry.recent = [...entry.recent, record.utilization].slice(-PEAK_OVER);
      entry.peak = entry.recent.length < PEAK_OVER ? entry.peak : Math.max(entry.peak, mean(entry.recent));
    }
    entry.now = record;
    entry.toldAtMs = Date.now();
    entry.alive = true;
    return entry;
  }

  pids() {
    return [...this.#entries.values()].map((entry) => entry.now.pid);
  }

  // All processes by role and number, each with its last report; `up`: it is alive and has reported within the last
  // seconds.
  processes() {
    const entries = [...this.#entries.values()];
    entries.sort((a, b) => a.now.role.localeCompare(b.now.role) || a.now.number - b.now.number);
    return entries.map((entry) => {
      entry.cpuS = cpuSeconds(entry.now.pid) ?? entry.cpuS;
      const total = Object.fromEntries(COUNTERS.map((name) => [name, entry.before[name] + counted(entry, name)]));
      const up = entry.alive && Date.now() - entry.toldAtMs < SILENT_AFTER_MS;
      const { starts, peak, bytesBefore } = entry;
      return { ...entry.now, ...total, up, starts, peak, bytesBefore };
    });
  }

  #read(line) {
    let entry;
    this.#lines.add(line);
    readline.createInterface({ input: line }).on('line', (text) => {
      const record = parsed(text);
      entry = record === undefined ? entry : this.note(record);
    });
    line.on('error', () => line.destroy());
    line.on('close', () => {
      this.#lines.delete(line);
      if (entry !== undefined) {
        entry.alive = false;
      }
    });
  }
}

// Parses a line; undefined if the end of its process cut it off.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function successor(entry) {
  const before = Object.fromEntries(
    COUNTERS.map((name) => [name, entry === undefined ? 0 : entry.before[name] + counted(entry, name)]),
  );
  return { before, now: {}, cpuS: 0, starts: (entry?.starts ?? 0) + 1, recent: [], peak: entry?.peak ?? 0 };
}

function counted(entry, name) {
  return name === 'cpuS' ? entry.cpuS : (entry.now[name] ?? 0);
}

// CPU time of all threads, user and system; undefined once the process has gone.
function cpuSeconds(pid) {
  let stat;
  try {
    stat = fs.readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_S;
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

module.exports = { Ledger };
