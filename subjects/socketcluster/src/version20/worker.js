'use strict';
// A server of SocketCluster 20: answers pings. Channels are SocketCluster's own, and reach the users of this process only.

const http = require('node:http');
const socketClusterServer = require('socketcluster-server');

const { answersOf } = require('../answers');
const { listen, settings } = require('../settings');
const { tell } = require('../tell');

const number = Number(process.env.SUBJECT_NUMBER);
const { host, port } = settings();
const answers = answersOf(number, settings());
const httpServer = http.createServer();
const server = socketClusterServer.attach(httpServer);
let messages = 0;

async function serve() {
  for await (const { socket } of server.listener('connection')) {
    socket.socket.on('message', () => {
      messages += 1;
    });
    answerPings(socket);
    answerCounts(socket);
  }
}

async function answerPings(socket) {
  for await (const _ of socket.receiver('ping')) {
    socket.transmit('pong', answers.pong());
  }
}

async function answerCounts(socket) {
  for await (const request of socket.procedure('count')) {
    request.end(answers.count());
  }
}

serve();
tell('worker', number, () => ({ connections: server.clientsCount, messages, pings: answers.pings() }));
listen(httpServer, { port, host });
