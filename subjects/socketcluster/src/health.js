'use strict';
// How the process that calls it is: one record each time, of what happened since the one before. Counters are for the whole
// life of the process. CPU time is not here: the master reads it from /proc, which a process that hangs cannot prevent.

const { monitorEventLoopDelay, performance } = require('node:perf_hooks');

// The histogram counts the whole time from one tick of its timer to the next, so a loop that is never late shows this.
const RESOLUTION_MS = 20;

function healthOf(role, number, counts) {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  let before = performance.eventLoopUtilization();
  return () => {
    const now = performance.eventLoopUtilization();
    const since = performance.eventLoopUtilization(now, before);
    before = now;
    const record = {
      role,
      number,
      pid: process.pid,
      residentBytes: residentBytes(),
      utilization: since.utilization,
      activeMs: now.active,
      idleMs: now.idle,
      delayMeanMs: lateMs(delay.mean),
      delayP99Ms: lateMs(delay.percentile(99)),
      ...counts(),
    };
    delay.reset();
    return record;
  };
}

// Undefined where no descriptor is left to look it up with.
function residentBytes() {
  try {
    return process.memoryUsage.rss();
  } catch {
    return undefined;
  }
}

function lateMs(ns) {
  return Number.isFinite(ns) ? Math.max(0, ns / 1e6 - RESOLUTION_MS) : 0;
}

module.exports = { healthOf };
