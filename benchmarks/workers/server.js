// A Node cluster; each request costs the same work: node server.js PORT ROUNDS PROCESSES.
const cluster = require("node:cluster");
const [port, rounds, processes] = process.argv.slice(2).map(Number);

if (cluster.isPrimary) {
  for (let i = 0; i < processes; i++) cluster.fork();
} else {
  require("node:http").createServer((_, answer) => {
    let state = rounds;
    for (let i = 0; i < rounds; i++) state = (Math.imul(state, 1664525) + 1013904223) | 0;
    answer.end(String(state));
  }).listen(port, "127.0.0.1", 511);
}
