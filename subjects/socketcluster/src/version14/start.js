'use strict';
// SocketCluster 14: its own broker and worker processes, with balancers in front. Workers listen on sockets in the
// folder of this start. Without balancers they share the port, and SocketCluster's process above them deals out
// connections.

const path = require('node:path');
const SocketCluster = require('socketcluster');

const { crew } = require('../crew');
const { BACKLOG } = require('../settings');

const TERMINATE_MS = 500;

function start(options, folder) {
  const master = new SocketCluster({
    appName: path.basename(folder),
    socketRoot: path.join(folder, 'brokers'),
    port: options.port,
    host: options.host,
    tcpSynBacklog: BACKLOG,
    workers: options.workers,
    brokers: options.brokers,
    workerController: path.join(__dirname, 'worker.js'),
    brokerController: path.join(__dirname, 'broker.js'),
    workerClusterController: path.join(__dirname, 'cluster.js'),
    environment: 'prod',
    logLevel: 1,
    processTermTimeout: TERMINATE_MS,
    forceKillTimeout: 2 * TERMINATE_MS,
  });
  let balancers;
  const ready = new Promise((resolve, reject) => {
    master.once('fail', reject);
    master.once('ready', () => {
      master.removeListener('fail', reject);
      resolve();
    });
  }).then(() => {
    if (options.balancers > 0) {
      balancers = crew('balancer', path.join(__dirname, 'balancer.js'), options.balancers);
      return balancers.ready;
    }
  });
  return {
    ready,
    close() {
      balancers?.close();
      master.destroy();
    },
  };
}

module.exports = { start };
