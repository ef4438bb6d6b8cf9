'use strict';
// A crew: a fixed number of processes of one kind, kept by Node's cluster. A process that dies is logged and started
// again under its number, as SocketCluster does with its own processes.

const cluster = require('node:cluster');

// `ready` resolves once all processes listen. It rejects if one dies before that: a new one would not help. After
// `close`, no process is started again.
function crew(role, program, size) {
  // The master accepts connections and deals them in turn, so that every process gets equally many. If processes accept
  // by themselves, the kernel favours a few.
  cluster.schedulingPolicy = cluster.SCHED_RR;
  cluster.setupPrimary({ exec: program, args: [] });
  let listening = 0;
  let closed = false;
  const ready = new Promise((resolve, reject) => {
    const start = (number, again) => {
      const child = cluster.fork({ SUBJECT_NUMBER: number });
      child.once('listening', () => {
        listening += 1;
        if (again) {
          console.log(`${role} ${number} was started again as process ${child.process.pid}`);
        }
        if (listening === size) {
          resolve();
        }
      });
      child.once('exit', (code, signal) => {
        if (closed) {
          return;
        }
        console.log(`${role} ${number}, process ${child.process.pid}, ended: ${signal ?? `exit code ${code}`}`);
        if (listening >= size) {
          start(number, true);
        } else {
          reject(new Error(`${role} ${number} ended before it listened`));
        }
      });
    };
    for (let number = 0; number < size; number += 1) {
      start(number, false);
    }
  });
  return {
    ready,
    close() {
      closed = true;
    },
  };
}

module.exports = { crew };
