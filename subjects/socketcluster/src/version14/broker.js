'use strict';
// A broker of SocketCluster 14: passes what one worker publishes to the workers that have subscribers.

const SCBroker = require('socketcluster/scbroker');

const { tell } = require('../tell');

class Broker extends SCBroker {
  run() {
    let messages = 0;
    this.on('publish', () => {
      messages += 1;
    });
    tell('broker', this.id, () => ({ messages }));
  }
}

new Broker();
