'use strict';
// Settings that the master decides once and every process below it reads. They are handed down in the environment,
// which SocketCluster and Node's cluster both pass on.

const path = require('node:path');

const NAME = 'SUBJECT_SETTINGS';

// Most connections waiting to be accepted. Node's default of 511 overflows when thousands of users join at once. The
// kernel caps it at net.core.somaxconn.
const BACKLOG = 65535;
const LOCAL = '127.0.0.1';

function handDown(settings) {
  process.env[NAME] = JSON.stringify(settings);
}

function settings() {
  return JSON.parse(process.env[NAME]);
}

// A process whose server cannot listen ends, and says why.
function listen(server, where, listening) {
  server.on('error', (error) => {
    if (!server.listening) {
      console.error(`socketcluster: ${error.message}`);
      process.exit(1);
    }
  });
  server.listen({ ...where, backlog: BACKLOG }, listening);
}

// The socket on which a worker of version 14 listens for the balancers.
function workerSocket(folder, number) {
  return path.join(folder, `w${number}`);
}

// The socket on which the master listens for the reports of its processes.
function lineSocket(folder) {
  return path.join(folder, 'line');
}

module.exports = { BACKLOG, LOCAL, handDown, lineSocket, listen, settings, workerSocket };
