'use strict';
// A worker of SocketCluster 14: answers pings. Channels are SocketCluster's own.

const fs = require('node:fs');
const SCWorker = require('socketcluster/scworker');

const { answersOf } = require('../answers');
const { listen, settings, workerSocket } = require('../settings');
const { tell } = require('../tell');

class Worker extends SCWorker {
  run() {
    const answers = answersOf(this.id, settings());
    let messages = 0;
    this.scServer.on('connection', (socket) => {
      socket.socket.on('message', () => {
        messages += 1;
      });
      socket.on('ping', () => socket.emit('pong', answers.pong()));
      socket.on('count', (_, respond) => respond(null, answers.count()));
    });
    tell('worker', this.id, () => ({ connections: this.scServer.clientsCount, messages, pings: answers.pings() }));
  }

  // Replaces SCWorker's method, which is ready before it listens, and can only listen on the port that all workers
  // share.
  startHTTPServer() {
    const { balancers, folder, host, port } = settings();
    const where = balancers > 0 ? { path: workerSocket(folder, this.id), exclusive: true } : { port, host };
    if (where.path !== undefined) {
      fs.rmSync(where.path, { force: true }); // of a worker of this number that was killed
    }
    return new Promise((resolve) => listen(this.httpServer, where, resolve));
  }
}

new Worker();
