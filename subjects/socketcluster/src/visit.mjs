// Runs in a browser: one visit after another, each printed as powerband reads it. A visit asks the worker how many pings it
// has received, and fails unless the answer is such a count, no lower than before. The client of version 14 is a script
// that leaves a global, that of version 20 a module.

const PAUSE_MEAN_MS = 1000;
const PATIENCE_MS = 10_000;
const { host, port, version } = document.documentElement.dataset;

const address = { hostname: host, port: Number(port), path: '/socketcluster/' };
const ask = version === '14' ? await version14() : await version20();
const counted = new Map(); // highest count so far, by process
for (;;) {
  const atMs = Date.now();
  const begunMs = performance.now();
  try {
    const answer = await within(ask(), PATIENCE_MS);
    const tookMs = performance.now() - begunMs;
    check(answer);
    tell({ at_ms: atMs, took_ms: tookMs });
  } catch (error) {
    tell({ at_ms: atMs, error: error.message ?? String(error) });
  }
  await pause(PAUSE_MEAN_MS * (0.5 + Math.random()));
}

async function version14() {
  await new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = '/visitor/client.js';
    script.onload = resolve;
    script.onerror = () => reject(new Error('the client could not be loaded'));
    document.head.append(script);
  });
  const socket = window.socketCluster.create(address);
  socket.on('error', () => {}); // a visit that fails tells of it
  return () =>
    new Promise((resolve, reject) => {
      socket.emit('count', null, (error, data) => (error ? reject(error) : resolve(data)));
    });
}

async function version20() {
  const { create } = await import('/visitor/client.js');
  const socket = create(address);
  return () => socket.invoke('count', null);
}

function check(answer) {
  const { count, pid } = answer ?? {};
  if (!Number.isInteger(count) || !Number.isInteger(pid) || count < (counted.get(pid) ?? 0)) {
    throw new Error(`a wrong answer: ${JSON.stringify(answer)}`);
  }
  counted.set(pid, count);
}

function within(promise, ms) {
  const late = pause(ms).then(() => {
    throw new Error(`no answer within ${ms / 1000} s`);
  });
  return Promise.race([promise, late]);
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function tell(visit) {
  console.log(`powerband visit ${JSON.stringify(visit)}`);
}
