'use strict';
// A page for a person among the users: in a browser it keeps one connection through SocketCluster's own client, asks
// its worker for the count of pings now and then, and prints to its console how long each answer took. It does not
// ping: the load's tally would miss its pings.

const fs = require('node:fs');
const path = require('node:path');

const MODULES = path.join(__dirname, '..', 'node_modules');
const CLIENTS = {
  14: path.join(MODULES, 'socketcluster-client-14', 'socketcluster.min.js'),
  20: path.join(MODULES, 'socketcluster-client', 'socketcluster-client.min.js'),
};
const SCRIPT = path.join(__dirname, 'visit.mjs');

// Answers a request for the page or one of its scripts; returns false for any other request.
function answer(request, response, options) {
  const parts = {
    '/visitor': () => ['text/html', page(options)],
    '/visitor/client.js': () => ['text/javascript', fs.readFileSync(CLIENTS[options.version])],
    '/visitor/visit.mjs': () => ['text/javascript', fs.readFileSync(SCRIPT)],
  };
  const part = Object.hasOwn(parts, request.url) ? parts[request.url] : undefined;
  if (part === undefined) {
    return false;
  }
  try {
    const [type, body] = part();
    response.setHeader('Content-Type', `${type}; charset=utf-8`);
    response.end(body);
  } catch (error) {
    response.statusCode = 500; // a file that cannot be read just now, where descriptors are short
    response.end(error.message);
  }
  return true;
}

function page({ host, port, version }) {
  return `<!doctype html>
<html lang="en" data-host="${host}" data-port="${port}" data-version="${version}">
<title>A person in the crowd</title>
<p>Asks the server every now and then, and prints to the console how long it took.</p>
<script type="module" src="/visitor/visit.mjs"></script>
</html>
`;
}

module.exports = { answer };
