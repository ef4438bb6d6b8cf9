// A plain WebSocket server on so many processes: node server.js PORT PROCESSES. Answers {"op":"ping"} with {"op":"pong"}.
const cluster = require('node:cluster');
const { WebSocketServer } = require('ws');

const [port, processes] = process.argv.slice(2).map(Number);
if (cluster.isPrimary) {
  for (let started = 0; started < processes; started += 1) cluster.fork();
} else {
  new WebSocketServer({ host: '127.0.0.1', port, backlog: 4096 }).on('connection', (socket) => {
    socket.on('message', (text) => {
      const { op, id } = JSON.parse(text);
      if (op === 'ping') socket.send(JSON.stringify({ op: 'pong', id }));
    });
  });
}
