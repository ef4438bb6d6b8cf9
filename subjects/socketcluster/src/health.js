'use strict';
// The health of the process that calls this: each call returns one record, of the time since the call before. Counters
// are for the whole life of the process. CPU time is not here: the master reads it from /proc, which works even if the
// process hangs.

const { monitorEventLoopDelay, performance } = require('node:perf_hooks');

// The histogram counts the whole time between two ticks of its timer, so a loop that is never late shows this value.
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

// The resident memory; undefined if no descriptor is left to read it with.
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
