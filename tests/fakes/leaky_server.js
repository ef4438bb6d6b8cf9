// Keeps so many KiB of each request for ever: node leaky_server.js PORT KIB.
const kept = [];
require("node:http").createServer((_, answer) => {
  kept.push(Buffer.alloc(1024 * Number(process.argv[3]), 1));
  setTimeout(() => answer.end("ok"), 20);
}).listen(Number(process.argv[2]), "127.0.0.1", 511);
