'use strict';
// The master: starts SocketCluster in the requested version, gathers the reports of its processes, serves them as a
// metrics page, and ends all processes when told to. The servers themselves are in version14/ and version20/.

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const { healthOf } = require('./health');
const { Ledger } = require('./ledger');
const { parse } = require('./options');
const page = require('./page');
const { LOCAL, handDown, lineSocket } = require('./settings');
const { EVERY_MS } = require('./tell');

// After this time, processes that have not ended by themselves are killed.
const GRACE_MS = 1000;
const POLL_MS = 20;
// The kernel's limit of 107 bytes, less the longest file name in the folder.
const FOLDER_BYTES_MAX = 90;

const NODE_LEAST = 18;

async function main() {
  if (Number(process.versions.node.split('.')[0]) < NODE_LEAST) {
    throw new Error(`this is Node ${process.versions.node}: version ${NODE_LEAST} or later is needed`);
  }
  const options = parse(process.argv.slice(2));
  process.title = 'master-0';
  const folder = socketFolder();
  process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));

  const ledger = new Ledger();
  await ledger.listen(lineSocket(folder));
  handDown({ ...options, folder });
  const { start } = options.version === '14' ? require('./version14/start') : require('./version20/start');
  const server = start(options, folder);

  let stopping = false;
  const stop = async (code) => {
    if (!stopping) {
      stopping = true;
      server.close();
      await endAll(ledger);
      process.exit(code);
    }
  };
  process.on('SIGTERM', () => stop(0));
  process.on('SIGINT', () => stop(0));

  try {
    await server.ready;
    const health = healthOf('master', 0, () => ({}));
    ledger.note(health());
    setInterval(() => ledger.note(health()), EVERY_MS);
    if (options.metricsPort !== 0) {
      await page.serve(ledger, options, LOCAL);
    }
    console.log(`listening on port ${options.port}`);
  } catch (error) {
    console.error(`socketcluster: ${error.message}`);
    await stop(1);
  }
}

// Makes a folder for this start alone: two starts that shared their sockets would refuse each other.
function socketFolder() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sc-'));
  if (Buffer.byteLength(folder) > FOLDER_BYTES_MAX) {
    fs.rmdirSync(folder);
    throw new Error(`${folder} is too long for the path of a socket: set TMPDIR to a shorter folder`);
  }
  return folder;
}

// Ends all processes: each ends itself when its line does. The master's own id is among those listed, and is skipped.
async function endAll(ledger) {
  ledger.close();
  const until = Date.now() + GRACE_MS;
  const left = () => ledger.pids().filter((pid) => pid !== process.pid && signal(pid, 0));
  while (left().length > 0 && Date.now() < until) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  left().forEach((pid) => signal(pid, 'SIGKILL'));
}

function signal(pid, name) {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}

main().catch((error) => {
  console.error(`socketcluster: ${error.message}`);
  process.exit(2);
});
