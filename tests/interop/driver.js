'use strict';

// One peer of the npm reference in a process of its own, driven by JSON lines.
//
// In:  {"id": 7, "do": "listen", ...}           one command a line
// Out: {"id": 7, "ok": ...} or {"id": 7, "error": "..."}   its answer
//      {"event": "secure", "connection": 1, ...}           what happened by itself
//
// Bytes are hex everywhere. The end of standard input ends the process. What nobody caught is
// reported as the event "uncaught", then the process exits with status 70.
//
// Two modes. After `node` each connection is handed to that hyperbloom-node Node, as a deployed
// program does it. After `raw` a connection is a bare hyperbloom-protocol Stream: nothing is
// answered, every message is reported, and `send` says what goes out.
//
// Either mode speaks protocol 2, or 1 after `"dialect": "1"`. No hyperbloom-node was published for
// protocol 1; that of protocol 2 takes a Stream of 1 as it takes its own.

const net = require('net');
const path = require('path');
const readline = require('readline');

const Node = require('hyperbloom-node');

const protocols = {
  2: require('hyperbloom-protocol'),
  1: require('hyperbloom-protocol-1')
};

// The very modules that the protocol uses, wherever npm has put them.
const beside = path.dirname(require.resolve('hyperbloom-protocol'));
const within = (name) => require(require.resolve(name, { paths: [ beside ] }));
const signatures = within('sodium-signatures');
const varint = within('varint');
const Chain = within('hyperbloom-chain');

const HOST = '127.0.0.1';
const EXIT_UNCAUGHT = 70;

const hex = (buffer) => buffer.toString('hex');
const unhex = (text) => Buffer.from(text, 'hex');
const optional = (text) => text === undefined || text === null ? undefined : unhex(text);

function say(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

function report(event, details) {
  say(Object.assign({ event }, details));
}

// What this process is

const peer = {
  mode: null,          // 'node' or 'raw'
  protocol: null,      // one of `protocols`
  node: null,
  start: null,         // what Stream.start() gets in raw mode
  twists: {},          // departures from what the reference does by itself, see twist()
  brief: false,        // report how many values came, not which
  server: null,
  connections: new Map(),
  watchers: new Map(),
  waiters: [],
  counter: 0
};

function configure(mode, command) {
  if (peer.mode !== null)
    throw new Error(`This process is a ${peer.mode} peer already`);

  const protocol = protocols[command.dialect || '2'];
  if (protocol === undefined)
    throw new Error(`Unknown dialect ${command.dialect}`);

  const start = {
    feedKey: unhex(command.feedKey),
    privateKey: signatures.keyPair(unhex(command.seed)).secretKey,
    chain: (command.chain || []).map(unhex)
  };
  peer.mode = mode;
  peer.protocol = protocol;
  peer.start = start;
  peer.twists = command.twists || {};
  peer.brief = mode === 'node' && !command.verbose;
  if (mode === 'node') {
    peer.node = new Node(Object.assign({
      full: command.full !== false,
      pollInterval: command.pollInterval
    }, start));
    tellWaitersOf(peer.node.storage);
  }
  return { publicKey: hex(start.privateKey.slice(32)) };
}

// Connections

// What a test may bend, each the least change to the running Stream that shows the case:
//   issueLinks      false turns the issuing of Links off (Node has no setting of its own, and
//                   protocol 1 always issues them)
//   handshakeChain  sent in the Handshake in place of the chain that start() has verified
//   handshakeSeed   the key that signs the Handshake and Data, whatever the chain says
//   discoveryKey    sent in Open in place of the feed's own
//   early           [[message id, body], ...] sent after Open, before the Handshake
function twist(stream, twists) {
  const start = stream.start;
  stream.start = function startTwisted(options) {
    const extra = {};
    if (twists.issueLinks !== undefined)
      extra.issueLinks = twists.issueLinks;
    if (twists.discoveryKey !== undefined)
      extra.discoveryKey = unhex(twists.discoveryKey);

    start.call(this, Object.assign({}, options, extra));

    if (twists.handshakeChain !== undefined)
      this.chain = twists.handshakeChain.map(unhex);
    if (twists.handshakeSeed !== undefined)
      this.privateKey = signatures.keyPair(unhex(twists.handshakeSeed)).secretKey;
    (twists.early || []).forEach(([ id, body ]) => sendFrame(this, id, unhex(body)));
  };
}

function addConnection(socket, direction) {
  const connection = ++peer.counter;
  const stream = new peer.protocol.Stream();
  peer.connections.set(connection, { stream, socket });
  report('connection', { connection, direction });

  // The Stream overrides destroy() and drops the error it is handed: Node.js emits no 'error' then.
  const destroy = stream.destroy;
  stream.destroy = function destroyReported(error) {
    if (error)
      report('error', { connection, where: 'stream', message: error.message });
    destroy.call(this, error);
  };

  stream.on('open', ({ feed }) => report('open', { connection, feed: hex(feed) }));
  stream.on('secure', ({ id, chain }) => {
    report('secure', { connection, id: hex(id), chain: chain.map(hex) });
  });
  stream.on('message', ({ type, body }) => {
    report('message', { connection, type, body: describe(type, body) });
  });
  stream.on('chain-update', (chain) => {
    report('chain-update', { connection, chain: chain.map(hex) });
  });
  stream.on('error', (error) => {
    report('error', { connection, where: 'stream', message: error.message });
    socket.destroy();
  });
  stream.on('close', () => {
    report('stream-close', { connection });
    socket.destroy();
  });
  socket.on('error', (error) => {
    report('error', { connection, where: 'socket', message: error.message });
  });
  socket.on('end', () => report('socket-end', { connection }));
  socket.on('close', () => {
    report('close', { connection });
    stream.destroy();
    peer.connections.delete(connection);
  });

  twist(stream, peer.twists);
  stream.pipe(socket).pipe(stream);
  if (peer.mode === 'node')
    peer.node.addStream(stream);
  else
    stream.start(peer.start);
  return connection;
}

function find(command) {
  const found = peer.connections.get(command.connection);
  if (found === undefined)
    throw new Error(`No connection ${command.connection} is open`);
  return found;
}

// Messages

function describe(type, body) {
  if (type === 'data') {
    const bytes = body.values.reduce((sum, value) => sum + value.length, 0);
    return Object.assign({ count: body.values.length, bytes },
                         peer.brief ? {} : { values: body.values.map(hex) });
  }
  if (type === 'sync') {
    const { size, n, seed, limit, range } = body;
    return { filterBytes: body.filter.length, size, n, seed, limit,
             filter: peer.brief ? undefined : hex(body.filter),
             range: range ? describeRange(range) : null };
  }
  if (type === 'request')
    return Object.assign(describeRange(body), { limit: body.limit });
  return body;
}

function describeRange({ start, end }) {
  return { start: hex(start), end: end ? hex(end) : null };
}

function range({ start, end }) {
  return { start: unhex(start || ''), end: optional(end) };
}

function sendFrame(stream, id, body) {
  const head = Buffer.from(varint.encode(id));
  const length = Buffer.from(varint.encode(head.length + body.length));
  const frame = Buffer.concat([ length, head, body ]);
  stream._xor.self.update(frame, frame);
  stream.push(frame);
}

function send(stream, { type, body }) {
  const { messages } = peer.protocol;
  if (type === 'sync') {
    return stream.sync({ filter: unhex(body.filter), size: body.size, n: body.n, seed: body.seed,
                         limit: body.limit, range: body.range ? range(body.range) : null });
  }
  if (type === 'request')
    return stream.request(Object.assign(range(body), { limit: body.limit }));
  if (type === 'link')
    return stream._secureSend(messages.id.LINK, messages.Link, { link: unhex(body.link) });
  if (type === 'data') {
    const values = body.values.map(unhex);
    if (body.signature === undefined)
      return stream.data({ values });
    return stream._secureSend(messages.id.DATA, messages.Data,
                              { values, signature: unhex(body.signature) });
  }
  if (type === 'frame')
    return sendFrame(stream, body.id, unhex(body.body || ''));
  throw new Error(`Unknown message type ${type}`);
}

// Waiting for values, without asking again and again

function tellWaitersOf(storage) {
  const bulkInsert = storage.bulkInsert;
  storage.bulkInsert = function bulkInsertTold(values) {
    const inserted = bulkInsert.call(this, values);
    peer.waiters = peer.waiters.filter(waiter => !waiter());
    return inserted;
  };
}

function until(command) {
  const values = (command.has || []).map(unhex);
  const count = command.count || 0;
  const { storage } = peer.node;
  return new Promise((resolve) => {
    const waiter = () => {
      if (storage.count < count || !values.every(value => storage.has(value)))
        return false;
      resolve({ count: storage.count });
      return true;
    };
    if (!waiter())
      peer.waiters.push(waiter);
  });
}

// Commands

function needNode() {
  if (peer.node === null)
    throw new Error('This needs a `node` peer');
  return peer.node;
}

function listen() {
  return new Promise((resolve, reject) => {
    peer.server = net.createServer(socket => addConnection(socket, 'incoming'));
    peer.server.once('error', reject);
    peer.server.listen(0, HOST, () => resolve({ port: peer.server.address().port }));
  });
}

function connect({ port }) {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host: HOST, port });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.removeListener('error', reject);
      try {
        resolve({ connection: addConnection(socket, 'outgoing') });
      } catch (error) {
        socket.destroy();
        reject(error);
      }
    });
  });
}

const commands = {
  node: command => configure('node', command),
  raw: command => configure('raw', command),
  listen,
  connect,

  insert: ({ value }) => ({ inserted: needNode().insert(unhex(value)) }),
  bulkInsert: ({ values }) => ({ inserted: needNode().bulkInsert(values.map(unhex)).length }),
  request: command => ({ values: needNode().request(range(command), command.limit).map(hex) }),
  has: ({ values }) => ({ has: values.map(value => needNode().has(unhex(value))) }),
  count: () => ({ count: needNode().storage.count }),
  until: (command) => { needNode(); return until(command); },
  chain: () => ({ chain: needNode().chain.map(hex) }),

  watch(command) {
    const watch = peer.watchers.size + 1;
    const watcher = needNode().watch(range(command));
    peer.watchers.set(watch, watcher);
    watcher.on('values', values => report('values', { watch, values: values.map(hex) }));
    return { watch };
  },

  issueLink({ seed, trustee, expires }) {
    const { publicKey, secretKey } = signatures.keyPair(unhex(seed));
    const chain = new Chain({ root: publicKey });
    const link = chain.issueLink({ publicKey: unhex(trustee), expiration: expires }, secretKey);
    return { link: hex(link) };
  },

  send(command) {
    send(find(command).stream, command);
    return {};
  },

  // As a program ends a connection: half-close, then gone after a second.
  close(command) {
    const { stream } = find(command);
    if (stream.close)
      stream.close();
    else
      stream.shutdown();     // its name in protocol 1
    return {};
  },

  // As a crash ends it.
  destroy(command) {
    find(command).socket.destroy();
    return {};
  }
};

async function obey(line) {
  const command = JSON.parse(line);
  try {
    if (!Object.prototype.hasOwnProperty.call(commands, command.do))
      throw new Error(`Unknown command ${command.do}`);
    say({ id: command.id, ok: await commands[command.do](command) });
  } catch (error) {
    say({ id: command.id, error: error.message });
  }
}

function die(error) {
  report('uncaught', { message: String(error && error.stack || error) });
  process.exit(EXIT_UNCAUGHT);
}

process.on('uncaughtException', die);
process.on('unhandledRejection', die);

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', obey);
lines.on('close', () => process.exit(0));
report('ready', { node: process.version });
