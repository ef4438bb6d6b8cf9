'use strict';
// Support for the tests: one start of the subject, the content of its page, and users of both versions with one
// interface.

const { spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const { createRequire } = require('node:module');
const net = require('node:net');
const path = require('node:path');
const readline = require('node:readline');

// The folder in which the subject was built: this one, unless told otherwise.
const BUILD = process.env.SUBJECT_BUILD ?? path.join(__dirname, '..');
const built = createRequire(path.join(BUILD, 'package.json'));
const LOCAL = '127.0.0.1'; // where it listens unless told otherwise
const PATIENCE_MS = 20_000;

class Start {
  #master;
  lines = [];

  // `options`: by name, as on the command line. Resolves once the subject says that it listens, or has ended.
  static async of(options, descriptors = 4096) {
    const start = new Start();
    start.port = await freePort();
    start.metricsPort = await freePort();
    start.folder = fs.mkdtempSync('/tmp/sct-');
    process.on('exit', () => {
      start.signal('SIGKILL'); // where a test failed in the midst
      fs.rmSync(start.folder, { recursive: true, force: true });
    });
    start.host = options.host ?? LOCAL;
    start.version = String(options.version);
    const given = { port: start.port, 'metrics-port': start.metricsPort, ...options };
    const words = Object.entries(given).flatMap(([name, value]) => [`--${name}`, String(value)]);
    const command = [process.execPath, path.join(BUILD, 'src', 'main.js'), ...words];
    start.#master = spawn('sh', ['-c', `ulimit -n ${descriptors} && exec "$@"`, 'sh', ...command], {
      detached: true, // a session of its own, by which all that it starts is found
      env: { ...process.env, TMPDIR: start.folder },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [start.#master.stdout, start.#master.stderr]) {
      readline.createInterface({ input: stream }).on('line', (line) => start.lines.push(line));
    }
    start.ended = once(start.#master, 'exit');
    try {
      await until(() => start.said(/^listening on port/) || start.#master.exitCode !== null);
    } catch (error) {
      start.signal('SIGKILL');
      throw new Error(`it did not start:\n${start.lines.join('\n')}`, { cause: error });
    }
    return start;
  }

  get pid() {
    return this.#master.pid;
  }

  said(pattern) {
    return this.lines.some((line) => pattern.test(line));
  }

  signal(name) {
    this.#master?.kill(name);
  }

  // Every process of this start that has not ended, whatever its parent is.
  processes() {
    return fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name) && sessionOf(name) === this.pid).map(Number);
  }

  // Ends the subject, and waits until none of its processes is left, whatever the test did to them.
  async end() {
    this.signal('SIGTERM');
    await this.ended;
    await until(() => this.processes().length === 0);
  }

  // The metrics page: values by series, named as on it.
  async page() {
    const text = await (await fetch(`http://${LOCAL}:${this.metricsPort}/metrics`)).text();
    const rows = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    return new Map(rows.map((row) => [row.slice(0, row.lastIndexOf(' ')), Number(row.slice(row.lastIndexOf(' ')))]));
  }

  user() {
    return this.version === '14' ? User14.join(this) : User20.join(this);
  }
}

function sessionOf(pid) {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [state, , , session] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return state === 'Z' ? undefined : Number(session);
  } catch {
    return undefined;
  }
}

class User14 {
  static async join({ host, port }) {
    const { create } = built('socketcluster-client-14');
    const user = new User14();
    user.socket = create({ hostname: host, port, autoReconnect: false, multiplex: false });
    user.socket.on('error', () => {});
    user.gone = new Promise((resolve) => user.socket.on('close', resolve));
    await new Promise((resolve) => user.socket.on('connect', resolve));
    return user;
  }

  ping() {
    return new Promise((resolve) => {
      this.socket.once('pong', resolve);
      this.socket.emit('ping', { hello: 1 });
    });
  }

  count() {
    return new Promise((resolve, reject) => {
      this.socket.emit('count', null, (error, data) => (error ? reject(error) : resolve(data)));
    });
  }

  // Resolves, once subscribed, to a promise of the next message.
  async subscribe(name) {
    const channel = this.socket.subscribe(name);
    const next = new Promise((resolve) => channel.watch(resolve));
    await new Promise((resolve) => channel.on('subscribe', resolve));
    return { next };
  }

  publish(name, data) {
    return new Promise((resolve, reject) => {
      this.socket.publish(name, data, (error) => (error ? reject(error) : resolve()));
    });
  }

  leave() {
    this.socket.destroy();
  }
}

class User20 {
  static async join({ host, port }) {
    const { create } = built('socketcluster-client');
    const user = new User20();
    user.socket = create({ hostname: host, port, autoReconnect: false });
    user.gone = user.socket.listener('close').once();
    await user.socket.listener('connect').once();
    return user;
  }

  ping() {
    const pong = this.socket.receiver('pong').once();
    this.socket.transmit('ping', { hello: 1 });
    return pong;
  }

  count() {
    return this.socket.invoke('count');
  }

  async subscribe(name) {
    const channel = this.socket.subscribe(name);
    const next = channel.once();
    await channel.listener('subscribe').once();
    return { next };
  }

  publish(name, data) {
    return this.socket.invokePublish(name, data);
  }

  leave() {
    this.socket.disconnect();
  }
}

async function freePort() {
  const server = net.createServer().listen(0, LOCAL);
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

// Waits until the condition is true; fails after a time that no machine should need.
async function until(condition) {
  const end = Date.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (Date.now() > end) {
      throw new Error(`still not: ${condition}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

module.exports = { LOCAL, Start, freePort, until };
