// An http server of Node in front of threads of its own, or of libuv's: node threads.js PORT PLANT THREADS.
const crypto = require("node:crypto");
const http = require("node:http");
const { Worker } = require("node:worker_threads");

const [port, plant, threads] = [process.argv[2], process.argv[3], Number(process.argv[4])];
const SLEEPS = `
const { parentPort } = require("node:worker_threads");
parentPort.on("message", () => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
  parentPort.postMessage("done");
});`;
const free = [];
const waiting = [];

function give(worker, done) {
  worker.once("message", () => {
    if (waiting.length) give(worker, waiting.shift());
    else free.push(worker);
    done();
  });
  worker.postMessage("work");
}

const works = {
  threads: () => new Promise((done) => (free.length ? give(free.pop(), done) : waiting.push(done))),
  // On the four threads of libuv.
  scrypt: () => new Promise((done) => crypto.scrypt("x", "y", 32, { N: 1024 }, done)),
};

if (plant === "threads") for (let i = 0; i < threads; i++) free.push(new Worker(SLEEPS, { eval: true }));
http.createServer(async (_, answer) => {
  await works[plant]();
  answer.end("ok\n");
}).listen(port, "127.0.0.1", 511);
