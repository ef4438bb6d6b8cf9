// An http server of Node with one planted limit: node server.js PORT PLANT LIMIT [PROCESSES].
const cluster = require("node:cluster");
const crypto = require("node:crypto");
const fs = require("node:fs");
const http = require("node:http");
const os = require("node:os");
const path = require("node:path");

const [port, plant, limit, processes] = [process.argv[2], process.argv[3], Number(process.argv[4]), Number(process.argv[5] ?? 1)];

const asleep = (ms) => new Promise((done) => setTimeout(done, ms));
const waiting = [];
let free = limit;

async function slot(work) {
  if (free === 0) await new Promise((go) => waiting.push(go));
  else free -= 1;
  await work();
  if (waiting.length) waiting.shift()();
  else free += 1;
}

function spin(ms) {
  const until = process.hrtime.bigint() + BigInt(ms * 1e6);
  while (process.hrtime.bigint() < until);
}

let journal = null;
const agent = new http.Agent({ keepAlive: true, maxSockets: plant === "connections" ? limit : Infinity });
const call = () => new Promise((done) => http.get(process.env.BACKEND, { agent }, (got) => got.resume().on("end", done)));
const works = {
  none: () => {},
  sleep: () => asleep(20),
  // The head is written at once, and the body later.
  head: () => asleep(45),
  cpu: () => spin(1),
  blocked: () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5),
  // What "blocked" does, off the loop.
  moved: () => asleep(5),
  semaphore: () => slot(() => asleep(20)),
  // The pool of libuv has UV_THREADPOOL_SIZE threads.
  pool: () => new Promise((done) => crypto.pbkdf2("x", "y", 6000, 32, "sha256", done)),
  proxy: call,
  connections: call,
  fsync: () => slot(() => new Promise((done) => fs.write(journal, Buffer.alloc(4096), () => fs.fsync(journal, done)))),
};

if (cluster.isPrimary && processes > 1) {
  for (let i = 0; i < processes; i++) cluster.fork();
  // All begin to listen at once: connections that are kept alive would all stay with the first.
  let ready = 0;
  cluster.on("message", () => {
    if (++ready === processes) for (const worker of Object.values(cluster.workers)) worker.send("listen");
  });
} else {
  if (plant === "fsync") {
    const name = path.join(os.tmpdir(), `journal-${process.pid}`);
    journal = fs.openSync(name, "a");
    fs.unlinkSync(name);
  }
  const server = http.createServer(async (_, answer) => {
    if (plant === "head") answer.flushHeaders();
    await works[plant]();
    answer.end("ok\n");
  });
  const listen = () => server.listen(port, "127.0.0.1", 511);
  if (cluster.isPrimary) listen();
  else {
    process.once("message", listen);
    process.send("ready");
  }
}
