'use strict';
// The subject as its users and its operator see it: real clients of both versions, real processes. Nothing is asserted
// of times, except that some end comes at all.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const { describe, it } = require('node:test');

const { parse } = require('../src/options');
const { EVERY_MS } = require('../src/tell');
const { LOCAL, Start, freePort, until } = require('./support');

// At an address of this machine other than the usual one.
const SETTINGS = [
  { version: 14, balancers: 2, workers: 2, brokers: 2, host: '127.0.0.2' },
  { version: 14, balancers: 0, workers: 2, brokers: 1, host: '127.0.0.2' },
  { version: 20, workers: 2, host: '127.0.0.2' },
];
const USERS = 6;
const PINGS = 20;

const words = (options) => Object.entries(options).map((pair) => pair.join(' ')).join(', ');

async function started(options, body, descriptors) {
  const start = await Start.of(options, descriptors);
  try {
    await body(start);
  } finally {
    await start.end();
  }
}

// Connects one after the other: only then are connections dealt exactly in turn.
async function users(start, count) {
  const crowd = [];
  while (crowd.length < count) {
    crowd.push(await start.user());
  }
  return crowd;
}

for (const options of SETTINGS) {
  describe(words(options), () => {
    it('answers every ping, and the counts of all workers add up to them', () =>
      started(options, async (start) => {
        await assert.rejects(connected(start.port), /ECONNREFUSED/, 'nothing listens elsewhere');
        const crowd = await users(start, USERS);
        const highest = new Map();
        for (const user of crowd) {
          for (let ping = 0; ping < PINGS; ping += 1) {
            const { count, worker, pid } = await user.ping();
            assert.ok(Number.isInteger(worker) && worker < options.workers);
            highest.set(pid, Math.max(count, highest.get(pid) ?? 0));
          }
        }
        assert.equal([...highest.values()].reduce((a, b) => a + b), USERS * PINGS);
        assert.equal(highest.size, options.workers);
        const { count, pid } = await crowd[0].count();
        assert.equal(count, highest.get(pid), 'who asks for the count is not counted');
        await onThePage(start, options);
        crowd.forEach((user) => user.leave());
        await until(async () => (await start.page()).get('sc_connections{role="worker",process="0"}') === 0);
      }));

    it('ends with all its processes and files, users or not', async () => {
      const start = await Start.of(options);
      await users(start, USERS);
      assert.ok(start.processes().length >= options.workers + 1);
      start.signal('SIGTERM');
      assert.deepEqual(await start.ended, [0, null]);
      assert.deepEqual(start.processes(), []);
      assert.deepEqual(fs.readdirSync(start.folder), []);
    });

    it('leaves nobody behind when its master is killed', async () => {
      const start = await Start.of(options);
      start.signal('SIGKILL');
      await start.ended;
      await until(() => start.processes().length === 0);
    });

    it('starts a worker again that was killed', () =>
      started(options, async (start) => {
        const [user] = await users(start, 1);
        const { worker, pid } = await user.ping();
        await until(async () => sum(await start.page(), 'sc_pings_total') === 1);
        process.kill(pid, 'SIGKILL');
        await user.gone;
        const series = `sc_starts_total{role="worker",process="${worker}"}`;
        await until(async () => (await start.page()).get(series) === 2);
        await until(() => start.said(new RegExp(`worker ${worker}\\b.*(respawned|started again)`, 'i')));
        assert.equal(sum(await start.page(), 'sc_pings_total'), 1, 'its pings stay counted');
        const crowd = await users(start, USERS);
        const pids = await Promise.all(crowd.map(async (one) => (await one.ping()).pid));
        assert.ok(!pids.includes(pid));
        assert.equal(new Set(pids).size, options.workers);
        crowd.forEach((one) => one.leave());
      }));
  });
}

async function onThePage(start, options) {
  const roles = { master: 1, worker: options.workers };
  if (options.version === 14) {
    Object.assign(roles, { cluster: 1, broker: options.brokers, balancer: options.balancers });
  }
  const named = Object.entries(roles).flatMap(([role, count]) =>
    Array.from({ length: count }, (_, number) => `role="${role}",process="${number}"`),
  );
  // Wait until each process has reported a second that it has lived through, and all that passed through it.
  const told = (page) => named.every((labels) => page.get(`sc_event_loop_idle_seconds_total{${labels}}`) > 0);
  const passed = (page) => !options.balancers || sum(page, 'sc_messages_total', 'role="balancer"') >= USERS * PINGS;
  let page;
  await until(async () => {
    page = await start.page();
    return sum(page, 'sc_pings_total') === USERS * PINGS && told(page) && passed(page);
  });
  for (const labels of named) {
    const of = (name) => page.get(`${name}{${labels}}`);
    assert.equal(of('sc_up'), 1, labels);
    assert.equal(of('sc_starts_total'), 1);
    assert.ok(of('sc_cpu_seconds_total') > 0);
    assert.ok(of('sc_resident_bytes') > 1e7 && of('sc_resident_before_users_bytes') > 1e7);
    assert.ok(of('sc_event_loop_utilization_ratio') >= 0 && of('sc_event_loop_utilization_ratio') <= 1);
    assert.ok(of('sc_event_loop_delay_p99_seconds') >= 0);
    assert.ok(of('sc_event_loop_active_seconds_total') > 0);
  }
  for (const [role, count] of Object.entries(roles)) {
    assert.equal(page.get(`sc_processes{role="${role}"}`) ?? 0, count);
  }
  assert.equal([...page.keys()].filter((name) => name.startsWith('sc_up{')).length, named.length);
  assert.equal(sum(page, 'sc_connections', 'role="worker"'), USERS);
  assert.equal(page.get('sc_connections_per_worker_min'), USERS / options.workers, 'spread evenly');
  assert.equal(page.get('sc_connections_per_worker_max'), USERS / options.workers);
  assert.ok(page.get('sc_pings_per_worker_max') + page.get('sc_pings_per_worker_min') === USERS * PINGS);
  if (roles.balancer > 0) {
    assert.equal(sum(page, 'sc_connections', 'role="balancer"'), USERS);
  }
  assert.ok(page.get('sc_load_average_1m') >= 0 && page.get('sc_processors') >= 1);
}

function sum(page, name, label = '') {
  return [...page].filter(([series]) => series.startsWith(`${name}{`) && series.includes(label)).reduce((a, [, b]) => a + b, 0);
}

describe('channels', () => {
  for (const options of [{ version: 14, balancers: 1, workers: 2, brokers: 2 }, { version: 20, workers: 1 }]) {
    it(`reach every subscriber: ${words(options)}`, () =>
      started(options, async (start) => {
        const crowd = await users(start, 4);
        for (const name of ['first', 'second', 'third']) {
          const subscriptions = await Promise.all(crowd.map((user) => user.subscribe(name)));
          await crowd[0].publish(name, { said: name });
          for (const { next } of subscriptions) {
            assert.deepEqual(await next, { said: name });
          }
        }
        crowd.forEach((user) => user.leave());
      }));
  }
});

describe('processes that fail', () => {
  it('shows a worker that hangs, and ends with it', () =>
    started({ version: 14, workers: 2 }, async (start) => {
      const [user] = await users(start, 1);
      const { worker, pid } = await user.ping();
      process.kill(pid, 'SIGSTOP');
      const up = async (number) => (await start.page()).get(`sc_up{role="worker",process="${number}"}`);
      await until(async () => (await up(worker)) === 0);
      assert.equal(await up(1 - worker), 1);
    }));

  it('starts a balancer again, and a broker', () =>
    started({ version: 14, balancers: 1, workers: 1, brokers: 1 }, async (start) => {
      for (const role of ['balancer', 'broker']) {
        const found = start.processes().find((pid) => fs.readFileSync(`/proc/${pid}/comm`, 'utf8') === `${role}-0\n`);
        process.kill(found, 'SIGKILL');
        await until(async () => (await start.page()).get(`sc_starts_total{role="${role}",process="0"}`) === 2);
      }
      const [user] = await users(start, 1);
      assert.equal((await user.ping()).count, 1);
      user.leave();
    }));

  it('refuses users that a balancer has no descriptors for, and lets others in their place', () =>
    started({ version: 14, balancers: 1, workers: 1 }, async (start) => {
      const connections = await Promise.all(Array.from({ length: 80 }, () => connected(start.port)));
      await until(() => connections.filter((connection) => connection.closed).length === 80 - (200 - 64) / 2);
      assert.equal(start.lines.filter((line) => /balancer 0 refuses a connection: there are 68/.test(line)).length, 1);
      connections.forEach((connection) => connection.destroy());
      await until(async () => sum(await start.page(), 'sc_connections', 'role="balancer"') === 0);
      const [user] = await users(start, 1);
      assert.equal((await user.ping()).count, 1);
      user.leave();
    }, 200));

  it('lives on where its master has no descriptors left for a while', () =>
    started({ version: 20, workers: 1 }, async (start) => {
      const [user] = await users(start, 1);
      const { pid } = await user.ping();
      process.kill(pid, 'SIGSTOP'); // so that connections pile up in the master
      const connections = await Promise.all(Array.from({ length: 150 }, () => connected(start.port)));
      await until(() => connections.some((connection) => connection.closed));
      await new Promise((resolve) => setTimeout(resolve, 2 * EVERY_MS)); // it looks at itself meanwhile
      process.kill(pid, 'SIGCONT');
      connections.forEach((connection) => connection.destroy());
      const page = () => start.page().catch(() => new Map()); // for that, too, it needs a descriptor
      await until(async () => (await page()).get('sc_up{role="worker",process="0"}') === 1);
      assert.equal((await user.ping()).count, 2);
      user.leave();
    }, 100));

  it('does not start on a port in use', async () => {
    await started({ version: 20, workers: 1 }, async (first) => {
      for (const options of [{ version: 20 }, { version: 14, balancers: 1 }, { version: 14, balancers: 0 }]) {
        const second = await Start.of({ ...options, port: first.port });
        assert.deepEqual(await second.ended, [1, null]);
        assert.ok(second.said(/EADDRINUSE/));
        await until(() => second.processes().length === 0);
        assert.deepEqual(fs.readdirSync(second.folder), []);
      }
    });
  });
});

async function connected(port) {
  const connection = net.connect(port, LOCAL);
  connection.on('error', () => {});
  connection.resume();
  await once(connection, 'connect');
  return connection;
}

describe('options', () => {
  it('have durations in every unit that powerband fills in', () => {
    for (const [text, ns] of [['0', 0], ['5us', 5e3], ['1500ms', 1.5e9], ['2m', 1.2e11], ['1h', 3.6e12]]) {
      assert.equal(parse(['--burn', text]).burnNs, ns);
    }
  });

  it('change what a ping costs and what a pong weighs', () =>
    started({ version: 20, payload: 1000, burn: '50us' }, async (start) => {
      const [user] = await users(start, 1);
      const pong = await user.ping();
      assert.equal(pong.padding.length, 1000);
      assert.equal(pong.count, 1);
      user.leave();
    }));

  it('are checked', async () => {
    const port = await freePort();
    for (const [options, said] of [
      [{ workers: 0 }, /--workers 0 is no whole number from 1 on/],
      [{ version: 15 }, /--version 15: there are 14 and 20/],
      [{ burn: '5' }, /--burn 5 is no duration/],
      [{ threads: 2 }, /there is no option --threads/],
    ]) {
      const start = await Start.of({ version: 14, port, ...options });
      assert.deepEqual(await start.ended, [2, null]);
      assert.ok(start.said(said));
      assert.deepEqual(fs.readdirSync(start.folder), []);
    }
  });
});
