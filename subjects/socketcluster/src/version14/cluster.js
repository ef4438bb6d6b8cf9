'use strict';
// The process of SocketCluster 14 that keeps its workers.

const SCWorkerCluster = require('socketcluster/scworkercluster');

const { tell } = require('../tell');

class Cluster extends SCWorkerCluster {
  run() {
    tell('cluster', 0, () => ({}));
  }
}

new Cluster();
