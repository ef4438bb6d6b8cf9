'use strict';
// What a worker answers, the same in both versions: a ping by how many pings it has received.

// About a nanosecond each on a CPU of 3 GHz: one multiplication and one addition that wait for each other.
const STEPS_PER_NS = 0.75;

function answersOf(number, { payload, burnNs }) {
  const steps = Math.round(burnNs * STEPS_PER_NS);
  const padding = payload > 0 ? { padding: 'x'.repeat(payload) } : {};
  const { pid } = process;
  let pings = 0;
  return {
    pings: () => pings,
    // The process is named by its id as well, for a worker that was started again counts from 1 under the same number.
    pong() {
      burn(steps);
      pings += 1;
      return { count: pings, worker: number, pid, ...padding };
    },
    // The same without having been pinged: for whoever looks on.
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
