'use strict';

// Nodes of the npm package bittorrent-dht on 127.0.0.1, driven by JSON lines as ../driver.js is.
//
// In:  {"id": 7, "do": "get", "node": 0, ...}   one command a line
// Out: {"id": 7, "ok": ...} or {"id": 7, "error": "..."}   its answer
//
// Bytes are hex everywhere. The end of standard input ends the process.

const crypto = require('crypto');
const path = require('path');
const readline = require('readline');
const { pathToFileURL } = require('url');

const HOST = '127.0.0.1';
// What stands before a raw Ed25519 key in the forms that Node.js reads.
const PUBLIC_HEAD = Buffer.from('302a300506032b6570032100', 'hex');
const PRIVATE_HEAD = Buffer.from('302e020100300506032b657004220420', 'hex');

const hex = (buffer) => Buffer.from(buffer).toString('hex');
const unhex = (text) => Buffer.from(text, 'hex');

const nodes = [];
let DHT = null;

function verify(signature, message, publicKey) {
  const key = crypto.createPublicKey({
    key: Buffer.concat([ PUBLIC_HEAD, Buffer.from(publicKey) ]), format: 'der', type: 'spki'
  });
  return crypto.verify(null, Buffer.from(message), key, Buffer.from(signature));
}

function signer(seed) {
  const key = crypto.createPrivateKey({
    key: Buffer.concat([ PRIVATE_HEAD, seed ]), format: 'der', type: 'pkcs8'
  });
  return (message) => crypto.sign(null, Buffer.from(message), key);
}

function listen(bootstrap) {
  return new Promise((resolve, reject) => {
    const dht = new DHT({ bootstrap, verify, host: HOST });
    dht.on('error', reject);
    dht.on('warning', () => {});
    dht.listen(0, HOST, () => resolve(dht));
  });
}

const ready = (dht) => new Promise((resolve) => {
  if (dht.ready) resolve();
  else dht.once('ready', resolve);
});

const commands = {
  // `count` nodes, each knowing the first or `bootstrap` (HOST:PORT).
  async start({ count, bootstrap }) {
    for (let i = 0; i < count; i++) {
      const first = nodes.length ? `${HOST}:${nodes[0].address().port}` : null;
      const dht = await listen([ bootstrap, first ].filter(Boolean));
      nodes.push(dht);
      await ready(dht);
    }
    return { ports: nodes.map((dht) => dht.address().port), ids: nodes.map((dht) => hex(dht.nodeId)) };
  },

  async put({ node, seed, salt, seq, value, cas }) {
    const sign = signer(unhex(seed));
    const key = crypto.createPublicKey(crypto.createPrivateKey({
      key: Buffer.concat([ PRIVATE_HEAD, unhex(seed) ]), format: 'der', type: 'pkcs8'
    })).export({ format: 'der', type: 'spki' }).subarray(PUBLIC_HEAD.length);
    const item = { k: key, seq, v: unhex(value), sign };
    if (salt) item.salt = unhex(salt);
    if (cas !== undefined) item.cas = cas;
    return new Promise((resolve, reject) => {
      nodes[node].put(item, (error, target, stored) => {
        if (error) reject(error);
        else resolve({ target: hex(target), stored });
      });
    });
  },

  async putImmutable({ node, value }) {
    return new Promise((resolve, reject) => {
      nodes[node].put({ v: unhex(value) }, (error, target, stored) => {
        if (error) reject(error);
        else resolve({ target: hex(target), stored });
      });
    });
  },

  async get({ node, target, salt }) {
    const options = { cache: false };
    if (salt) options.salt = unhex(salt);
    return new Promise((resolve, reject) => {
      nodes[node].get(unhex(target), options, (error, found) => {
        if (error) reject(error);
        else resolve(found ? { value: hex(found.v), seq: found.seq ?? null } : { value: null });
      });
    });
  },

  async announce({ node, infoHash, port }) {
    return new Promise((resolve, reject) => {
      nodes[node].announce(unhex(infoHash), port, (error) => error ? reject(error) : resolve({}));
    });
  },

  async peers({ node, infoHash }) {
    const found = new Set();
    const note = (peer) => found.add(`${peer.host}:${peer.port}`);
    nodes[node].on('peer', note);
    return new Promise((resolve) => {
      nodes[node].lookup(unhex(infoHash), () => {
        nodes[node].removeListener('peer', note);
        resolve({ peers: [ ...found ] });
      });
    });
  },

  async known({ node }) {
    return { nodes: nodes[node].toJSON().nodes.length };
  },

  async destroy({ node }) {
    return new Promise((resolve) => nodes[node].destroy(() => resolve({})));
  }
};

function say(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

async function run(line) {
  const command = JSON.parse(line);
  try {
    say({ id: command.id, ok: await commands[command.do](command) });
  } catch (error) {
    say({ id: command.id, error: String(error.message || error) });
  }
}

async function main() {
  // An ES module, which NODE_PATH does not find.
  const entry = path.join(process.env.NODE_PATH, 'bittorrent-dht', 'index.js');
  DHT = (await import(pathToFileURL(entry))).Client;
  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', run);
  lines.on('close', () => process.exit(0));
  say({ event: 'ready' });
}

main();
