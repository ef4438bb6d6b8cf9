'use strict';
// A balancer: passes the bytes of each connection to the worker with the fewest connections of this balancer, and back.
// SocketCluster 0.9 had such processes, which chose by the number of clients, too; those read HTTP, these do not.

const fs = require('node:fs');
const net = require('node:net');

const { listen, settings, workerSocket } = require('../settings');
const { tell } = require('../tell');

// Descriptors kept for the line to the master and Node's own files.
const DESCRIPTORS_KEPT = 64;

const number = Number(process.env.SUBJECT_NUMBER);
const { folder, host, port, workers } = settings();
const connectionsMax = Math.floor((descriptorsMax() - DESCRIPTORS_KEPT) / 2);
const open = new Array(workers).fill(0);
let connections = 0;
let messages = 0;
let refused = 0;

function take(user) {
  if (connections >= connectionsMax) {
    refuse(user, `there are ${connections} connections, and each takes two descriptors`);
    return;
  }
  connections += 1;
  user.on('error', () => {}); // a connection that breaks is closed next
  user.on('close', () => {
    connections -= 1;
  });
  user.on('data', () => {
    messages += 1;
  });
  pass(user, new Set());
}

// `tried`: the workers that did not take this connection.
function pass(user, tried) {
  const chosen = leastBusy(tried);
  if (chosen === undefined) {
    refuse(user, 'no worker takes connections');
    return;
  }
  open[chosen] += 1;
  let joined = false;
  const worker = net.connect(workerSocket(folder, chosen));
  const leave = () => worker.destroySoon();
  user.once('close', leave);
  worker.on('connect', () => {
    joined = true;
    user.pipe(worker);
    worker.pipe(user);
  });
  worker.on('error', () => {});
  worker.on('close', () => {
    open[chosen] -= 1;
    user.removeListener('close', leave);
    if (joined || user.destroyed) {
      user.destroySoon();
    } else {
      pass(user, tried.add(chosen));
    }
  });
}

// Each balancer begins with a different worker, so that a few users do not all go to the first.
function leastBusy(tried) {
  let best;
  for (let at = 0; at < workers; at += 1) {
    const worker = (number + at) % workers;
    if (!tried.has(worker) && (best === undefined || open[worker] < open[best])) {
      best = worker;
    }
  }
  return best;
}

// Logged once only: thousands of users may follow.
function refuse(user, why) {
  refused += 1;
  if (refused === 1) {
    console.error(`balancer ${number} refuses a connection: ${why}`);
  }
  user.destroy();
}

function descriptorsMax() {
  const line = /^Max open files +(\d+|unlimited)/m.exec(fs.readFileSync('/proc/self/limits', 'latin1'));
  return line === null || line[1] === 'unlimited' ? Infinity : Number(line[1]);
}

tell('balancer', number, () => ({ connections, messages }));
listen(net.createServer({ noDelay: true, pauseOnConnect: true }, take), { port, host });
