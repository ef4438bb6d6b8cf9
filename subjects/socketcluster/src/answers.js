'use strict';
// A worker's answers, the same in both versions: each ping is answered with the number of pings received so far.

// Each step, a multiplication and an addition that wait for each other, takes about a nanosecond on a CPU of 3 GHz.
const STEPS_PER_NS = 0.75;

function answersOf(number, { payload, burnNs }) {
  const steps = Math.round(burnNs * STEPS_PER_NS);
  const padding = payload > 0 ? { padding: 'x'.repeat(payload) } : {};
  const { pid } = process;
  let pings = 0;
  return {
    pings: () => pings,
    // Answers also have the process id, because a worker that was started again counts from 1 under the same number.
    pong() {
      burn(steps);
      pings += 1;
      return { count: pings, worker: number, pid, ...padding };
    },
    // The same answer without counting a ping, for onlookers.
    count: () => ({ count: pings, worker: number, pid }),
  };
}

let sink = 1;

function burn(steps) {
  let value = sink;
  for (let step = 0; step < steps; step += 1) {
    value = (Math.imul(value, 1664525) + 1013904223) | 0;
  }
  sink = value;
}

module.exports = { answersOf };
