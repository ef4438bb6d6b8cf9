'use strict';
// What the master settles once and every process below it reads: handed down in the environment, which SocketCluster and
// Node's cluster both pass on.

const path = require('node:path');

const NAME = 'SUBJECT_SETTINGS';

// Connections that wait to be accepted: Node's default of 511 overflows where thousands of users join at once. The kernel
// caps it at net.core.somaxconn.
const BACKLOG = 65535;
const LOCAL = '127.0.0.1';

function handDown(settings) {
  process.env[NAME] = JSON.stringify(settings);
}

function settings() {
  return JSON.parse(process.env[NAME]);
}

// A server that cannot listen is the end of its process, and says why.
function listen(server, where, listening) {
  server.on('error', (error) => {
    if (!server.listening) {
      console.error(`socketcluster: ${error.message}`);
      process.exit(1);
    }
  });
  server.listen({ ...where, backlog: BACKLOG }, listening);
}

// Where a worker of version 14 listens for the balancers.
function workerSocket(folder, number) {
  return path.join(folder, `w${number}`);
}

// Where the master listens for what its processes tell.
function lineSocket(folder) {
  return path.join(folder, 'line');
}

module.exports = { BACKLOG, LOCAL, handDown, lineSocket, listen, settings, workerSocket };
