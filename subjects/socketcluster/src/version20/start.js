'use strict';
// SocketCluster 20: one process is one server. Several are kept by Node's cluster, whose master deals out connections.

const path = require('node:path');

const { crew } = require('../crew');

function start(options) {
  if (options.balancers !== 1 || options.brokers !== 1) {
    console.log('version 20 has neither balancers nor brokers: --balancers and --brokers mean nothing to it');
  }
  return crew('worker', path.join(__dirname, 'worker.js'), options.workers);
}

module.exports = { start };
