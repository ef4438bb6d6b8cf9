'use strict';
// A crew: as many processes of one kind as told, kept by Node's cluster. One that dies is said in the log and started again
// under its number, as SocketCluster does with its own.

const cluster = require('node:cluster');

// `ready` resolves once all of them listen, and rejects where one dies before: a new one would not mend that. From `close`
// on none is started again.
function crew(role, program, size) {
  // The master accepts and deals connections out in turn: every process gets as many as any other. Where processes accept
  // by themselves the kernel favours a few.
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
