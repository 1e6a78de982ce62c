/**
 * Pixiu for JavaScript: one file, no build, for browsers and Node 22 and newer.
 *
 *     import { connect } from './pixiu.js';
 *
 *     const me = connect({ url: 'http://127.0.0.1:8400', token });
 *     me.on('message', (message) => console.log(message.from, message.text));
 *     await me.send({ to: 'bob', text: 'hello' });
 *
 * What it does by itself: connects again after a break and resumes where it was; shows every message once; acks what it
 * has stored; remembers what is missing (gaps) and closes it page by page; sends again, with one send_id, until there is
 * an answer. docs/sdk-javascript.md says the rest.
 *
 * Ids and cursors are texts, as on the wire: they do not fit into a JavaScript number.
 *
 * @typedef {{ message_id: string, from: string, to?: string, group?: string, room?: string, at: number, kind: string,
 *   text?: string, body?: string, send_id?: string, ref?: string, fields?: Record<string, string>, prev?: string,
 *   recalled?: boolean, missing?: boolean, delivered_at?: number, read_at?: number }} Message
 * @typedef {{ with: string } | { group: string } | { room: string }} Place  a conversation
 * @typedef {{ with?: string, group?: string, after: string, before: string, trimmed?: boolean }} Gap
 *   everything behind `after` and below `before` is missing here
 * @typedef {{ name: 'connecting' | 'open' | 'waiting' | 'closed', reason?: string, until?: number }} State
 * @typedef {{ url?: string, token: string, user?: string, store?: 'memory' | 'indexeddb' | object, storeName?: string,
 *   refreshToken?: (() => Promise<string>) | null, receipts?: boolean, WebSocket?: typeof WebSocket }} Options
 */

const REQUEST_MS = 20_000; // an answer takes no longer, or it is 'unavailable'
const SEND_MS = 120_000; // how long a send is tried again
const IN_FLIGHT_MAX = 32; // requests without an answer; the server takes 64
const QUEUE_MAX = 1_000; // requests that wait; one more is refused as 'busy'
const BUFFER_MAX = 1_000; // messages that an iterator holds; at the bound nothing more is acked
const SEEN_MAX = 2_000; // ids of live messages, which are in no store
const KEPT_MAX = 5_000; // messages of one conversation in a memory store; the oldest go, and become a gap
const PAGE = 50;
const SILENCE_MS = 30_000; // after so long without a word the server is asked for one
const AGAIN_MS = [1_000, 60_000]; // what was missed and cannot be asked for now is asked for later
const BACKOFF_MS = [400, 30_000];

const READS = new Set(['history', 'sync', 'user', 'group', 'contacts', 'scheduled', 'search', 'presence']);
const SENDS = new Set(['send', 'gsend', 'schedule']);
const LATER = new Set(['busy', 'unavailable', 'rate_limited']);
const RETURNS = new Set(['no_ack', 'slow', 'resync', 'unknown_session', 'shutdown', 'idle']);
const ACTIONS = [
  'send', 'gsend', 'receive', 'history', 'sync', 'read', 'receipt', 'recall', 'create_user', 'user', 'contact', 'unlink',
  'contacts', 'block', 'unblock', 'create_group', 'group', 'join', 'quit', 'manage', 'enter', 'leave', 'say', 'typing',
  'signal', 'presence', 'schedule', 'unschedule', 'scheduled', 'search', 'register_push', 'unregister_push',
];

/** What went wrong. `code` is one of bad_request unauthenticated forbidden not_found conflict too_large rate_limited busy unavailable internal. */
export class PixiuError extends Error {
  constructor(code, message, retryAfterMs = 0) {
    super(message);
    this.name = 'PixiuError';
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Orders ids: negative, 0 or positive. */
export function compareIds(a, b) {
  return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);
}

/** The text that names a conversation: `u:bob`, `g:team`, `r:lobby`. */
export function placeKey(place) {
  if (place.room !== undefined) return `r:${place.room}`;
  return place.group !== undefined ? `g:${place.group}` : `u:${place.with}`;
}

/** The conversation that such a text names. */
export function placeOf(key) {
  const name = key.slice(2);
  return key[0] === 'r' ? { room: name } : key[0] === 'g' ? { group: name } : { with: name };
}

/** The conversation that a message belongs to, seen by `user`. */
export function placeOfMessage(message, user) {
  if (message.room !== undefined) return { room: message.room };
  if (message.group !== undefined) return { group: message.group };
  return { with: message.from === user && message.to !== undefined ? message.to : message.from };
}

/** One request over HTTP: its JSON, or a PixiuError. */
export async function request(path, { url = '', method = 'GET', token, query, body, timeoutMs = REQUEST_MS } = {}) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null);
  const search = given.length ? `?${new URLSearchParams(given)}` : '';
  const headers = body === undefined ? {} : { 'Content-Type': 'application/json' };
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    const content = body === undefined ? undefined : JSON.stringify(body);
    answer = await fetch(`${url}${path}${search}`, { method, headers, body: content, signal: AbortSignal.timeout(timeoutMs) });
  } catch (error) {
    throw new PixiuError('unavailable', error.name === 'TimeoutError' ? 'no answer in time' : 'the server cannot be reached');
  }
  const content = await answer.json().catch(() => ({}));
  if (answer.ok) return content;
  const { code = 'unavailable', message = `HTTP ${answer.status}` } = content.error ?? {};
  throw new PixiuError(code, message, 1000 * Number(answer.headers.get('retry-after') ?? 0));
}

/**
 * A client that is on its way to be connected. Throws where there is no WebSocket: Node before 22 has none of its own.
 * @param {Options} options
 */
export function connect(options) {
  const client = new Client(options);
  if (typeof client._Socket !== 'function') throw new PixiuError('unavailable', 'no WebSocket here: use Node 22 or newer, or pass one as `WebSocket`');
  client.reconnect();
  return client;
}

// Stores. All have the same calls; each returns a promise.

const padded = (id) => id.padStart(20, '0');

/** A message as it is here, with what is newly known of it. */
function merge(old, fresh) {
  const merged = { ...old, ...fresh };
  if (fresh.recalled) {
    delete merged.text;
    delete merged.body;
  }
  return merged;
}

const recalled = (message) => {
  message.recalled = true;
  delete message.text;
  delete message.body;
};

const rowOf = (message, user) => {
  const place = placeKey(placeOfMessage(message, user));
  return { place, key: padded(message.message_id), message_id: message.message_id, message };
};

/** Messages, cursor, gaps, conversations and unsent messages, until the program ends. */
export class MemoryStore {
  constructor() {
    this._places = new Map(); // place → rows by key, oldest first
    this._ids = new Map(); // message_id → row
    this._gaps = new Map(); // place → gaps
    this._outbox = new Map();
    this._cursor = null;
    this._owed = null;
  }

  async open() {}

  async close() {}

  async cursor() {
    return this._cursor;
  }

  /** Places that may lack something, with the last message before it; null: nothing is owed. */
  async owed() {
    return this._owed;
  }

  async owe(lasts) {
    this._owed = lasts;
  }

  /** Stores rows and the cursor in one step. Gives the rows that are new, and the places that are. */
  async save(rows, cursor) {
    const added = [];
    const places = new Set();
    for (const row of rows) {
      const old = this._ids.get(row.message_id);
      if (old) {
        old.message = merge(old.message, row.message);
        continue;
      }
      if (!this._places.has(row.place)) {
        this._places.set(row.place, []);
        places.add(row.place);
      }
      const list = this._places.get(row.place);
      let at = list.length;
      while (at > 0 && list[at - 1].key > row.key) at -= 1;
      list.splice(at, 0, row);
      this._ids.set(row.message_id, row);
      added.push(row);
      if (list.length > KEPT_MAX) this._forget(row.place, list);
    }
    if (cursor !== undefined) this._cursor = cursor;
    return { added, places: [...places] };
  }

  _forget(place, list) {
    for (const row of list.splice(0, list.length - KEPT_MAX)) this._ids.delete(row.message_id);
    const oldest = list[0].message_id;
    const above = (this._gaps.get(place) ?? []).filter((gap) => compareIds(gap.before, oldest) > 0);
    this._gaps.set(place, [{ ...placeOf(place), after: '0', before: oldest }, ...above]);
  }

  async patch(ids, change) {
    for (const id of ids) {
      const row = this._ids.get(id);
      if (row) change(row.message);
    }
  }

  async get(id) {
    return this._ids.get(id)?.message ?? null;
  }

  /** Messages of a place below an id, newest first. */
  async page(place, { before, limit }) {
    const list = this._places.get(place) ?? [];
    const end = before ? list.findIndex((row) => row.key >= padded(before)) : -1;
    const rows = end < 0 ? list : list.slice(0, end);
    return rows.slice(-limit).reverse().map((row) => row.message);
  }

  async conversations() {
    return [...this._places].filter(([, list]) => list.length).map(([place, list]) => ({ place, last: list[list.length - 1].message }));
  }

  async gaps(place) {
    return [...(this._gaps.get(place) ?? [])];
  }

  async putGap(place, gap) {
    const others = (this._gaps.get(place) ?? []).filter((each) => each.before !== gap.before);
    this._gaps.set(place, [...others, gap].sort((a, b) => compareIds(a.before, b.before)));
  }

  async dropGap(place, gap) {
    this._gaps.set(place, (this._gaps.get(place) ?? []).filter((each) => each.before !== gap.before));
  }

  async unsent() {
    return [...this._outbox.values()];
  }

  async putUnsent(each) {
    this._outbox.set(each.send_id, each);
  }

  async dropUnsent(sendId) {
    this._outbox.delete(sendId);
  }
}

/** The same in IndexedDB: survives a reload and a restart of the browser. */
export class IndexedStore {
  constructor(name) {
    this.name = name;
    this._database = null;
  }

  async open() {
    this._database = await new Promise((resolve, reject) => {
      const opening = indexedDB.open(this.name, 1);
      opening.onupgradeneeded = () => {
        const database = opening.result;
        database.createObjectStore('messages', { keyPath: ['place', 'key'] }).createIndex('message_id', 'message_id', { unique: true });
        database.createObjectStore('gaps', { keyPath: ['place', 'key'] });
        database.createObjectStore('conversations', { keyPath: 'place' });
        database.createObjectStore('outbox', { keyPath: 'send_id' });
        database.createObjectStore('state');
      };
      opening.onsuccess = () => resolve(opening.result);
      opening.onerror = () => reject(opening.error);
      opening.onblocked = () => reject(new Error('the local store is in use by an older page'));
    });
    this._database.onversionchange = () => this._database.close();
  }

  async close() {
    this._database?.close();
  }

  /** Runs `work` in one transaction; gives its result once that is done for good. */
  _run(names, mode, work) {
    return new Promise((resolve, reject) => {
      const transaction = this._database.transaction(names, mode, { durability: 'strict' });
      let result;
      transaction.oncomplete = () => resolve(result);
      transaction.onabort = () => reject(transaction.error ?? new Error('the local store gave up'));
      const ask = (wish) => new Promise((yes) => (wish.onsuccess = () => yes(wish.result)));
      Promise.resolve(work(transaction, ask)).then((value) => (result = value), (error) => {
        result = undefined;
        reject(error);
        transaction.abort();
      });
    });
  }

  async cursor() {
    return (await this._run(['state'], 'readonly', (tx, ask) => ask(tx.objectStore('state').get('cursor')))) ?? null;
  }

  async owed() {
    return (await this._run(['state'], 'readonly', (tx, ask) => ask(tx.objectStore('state').get('owed')))) ?? null;
  }

  async owe(lasts) {
    return this._run(['state'], 'readwrite', (tx) => void tx.objectStore('state').put(lasts, 'owed'));
  }

  async save(rows, cursor) {
    return this._run(['messages', 'conversations', 'state'], 'readwrite', async (tx, ask) => {
      const messages = tx.objectStore('messages');
      const conversations = tx.objectStore('conversations');
      const added = [];
      const places = new Set();
      for (const row of rows) {
        const old = await ask(messages.get([row.place, row.key]));
        messages.put(old ? { ...old, message: merge(old.message, row.message) } : row);
        if (old) continue;
        added.push(row);
        const known = await ask(conversations.get(row.place));
        if (!known) places.add(row.place);
        if (!known || known.key <= row.key) conversations.put({ place: row.place, key: row.key });
      }
      if (cursor !== undefined) tx.objectStore('state').put(cursor, 'cursor');
      return { added, places: [...places] };
    });
  }

  async patch(ids, change) {
    return this._run(['messages'], 'readwrite', async (tx, ask) => {
      const messages = tx.objectStore('messages');
      for (const id of ids) {
        const row = await ask(messages.index('message_id').get(id));
        if (row) {
          change(row.message);
          messages.put(row);
        }
      }
    });
  }

  async get(id) {
    const row = await this._run(['messages'], 'readonly', (tx, ask) => ask(tx.objectStore('messages').index('message_id').get(id)));
    return row?.message ?? null;
  }

  async page(place, { before, limit }) {
    return this._run(['messages'], 'readonly', (tx) => new Promise((resolve) => {
      const range = IDBKeyRange.bound([place, ''], [place, before ? padded(before) : '~'], false, true);
      const found = [];
      tx.objectStore('messages').openCursor(range, 'prev').onsuccess = (event) => {
        const at = event.target.result;
        if (!at || found.length >= limit) return resolve(found);
        found.push(at.value.message);
        return at.continue();
      };
    }));
  }

  async conversations() {
    return this._run(['messages', 'conversations'], 'readonly', async (tx, ask) => {
      const rows = await ask(tx.objectStore('conversations').getAll());
      const found = [];
      for (const { place, key } of rows) {
        const row = await ask(tx.objectStore('messages').get([place, key]));
        if (row) found.push({ place, last: row.message });
      }
      return found;
    });
  }

  async gaps(place) {
    const range = () => IDBKeyRange.bound([place, ''], [place, '~']);
    return (await this._run(['gaps'], 'readonly', (tx, ask) => ask(tx.objectStore('gaps').getAll(range())))).map((row) => row.gap);
  }

  async putGap(place, gap) {
    return this._run(['gaps'], 'readwrite', (tx) => void tx.objectStore('gaps').put({ place, key: padded(gap.before), gap }));
  }

  async dropGap(place, gap) {
    return this._run(['gaps'], 'readwrite', (tx) => void tx.objectStore('gaps').delete([place, padded(gap.before)]));
  }

  async unsent() {
    return this._run(['outbox'], 'readonly', (tx, ask) => ask(tx.objectStore('outbox').getAll()));
  }

  async putUnsent(each) {
    return this._run(['outbox'], 'readwrite', (tx) => void tx.objectStore('outbox').put(each));
  }

  async dropUnsent(sendId) {
    return this._run(['outbox'], 'readwrite', (tx) => void tx.objectStore('outbox').delete(sendId));
  }
}

function userOf(token) {
  try {
    const text = atob(token.split('.')[1].replace(/-/g, '+').replace(/_/g, '/'));
    return String(JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (each) => each.charCodeAt(0)))).sub ?? '');
  } catch {
    return '';
  }
}

const newId = () => crypto.randomUUID();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * One user's connection. Every action is a method that takes the params of the wire: `send({ to, text })`,
 * `createGroup({ group, members })`, `history({ with: 'bob' })` …
 */
export class Client {
  /** @param {Options} options */
  constructor({ url = '', token, user, store = 'memory', storeName, refreshToken = null, receipts = true, WebSocket: Socket = globalThis.WebSocket }) {
    this.url = url.replace(/\/+$/, '');
    /** Who this is: the public id. */
    this.id = user || userOf(token);
    /** @type {State} */
    this.state = { name: 'connecting' };
    /** The latest contacts known. Of a long list this is the first page until the others have arrived. */
    this.contactsNow = { contacts: [], others: [] };
    this._token = token;
    this._refreshToken = refreshToken;
    this._sendsReceipts = receipts;
    this._Socket = Socket;
    this._storeName = storeName ?? `pixiu ${this.url} ${this.id}`;
    this._store = typeof store === 'object' ? store : store === 'indexeddb' && globalThis.indexedDB ? new IndexedStore(this._storeName) : new MemoryStore();
    this._isLoaded = null;
    this._isForsaken = false;
    this._listeners = new Map();
    this._socket = null;
    this._epoch = 0; // of the connection; what belongs to an older one does not count
    this._nextId = 1;
    this._asked = new Map(); // id → request that waits for its answer
    this._queue = []; // requests that wait for their turn
    this._pushes = [];
    this._isTaking = false;
    this._seen = new Set();
    this._hurried = new Set();
    this._rooms = new Map(); // rooms to enter again
    this._delivered = [];
    this._failures = 0;
    this._advice = 0;
    this._kicked = '';
    this._triedToken = false;
    this._cursorSeen = null; // the highest of this connection
    this._timer = 0;
    this._watch = 0;
    this._iterators = new Set();
    this._loading = new Map(); // gaps that are being closed
    this._isPaying = false; // what is owed is being asked for
    this._mustPay = false;
    this._wentOnline = () => this.state.name === 'waiting' && this.reconnect();
    globalThis.addEventListener?.('online', this._wentOnline);
  }

  // Events.

  /**
   * Calls `listener` for every event of a kind: message, sent, receipt, recall, typing, presence, signal, gap, contacts, resync,
   * state. Returns a function that ends it.
   */
  on(kind, listener) {
    if (!this._listeners.has(kind)) this._listeners.set(kind, new Set());
    this._listeners.get(kind).add(listener);
    return () => this._listeners.get(kind)?.delete(listener);
  }

  _emit(kind, value) {
    for (const listener of [...(this._listeners.get(kind) ?? [])]) {
      try {
        listener(value);
      } catch (error) {
        console.error(`pixiu: a listener of '${kind}' failed`, error);
      }
    }
  }

  /** Every new message, in order: `for await (const message of me.messages()) …`. While it lags far behind, nothing is acked. */
  messages() {
    const waiting = [];
    const buffer = [];
    const client = this;
    const iterator = {
      room: () => (buffer.length < BUFFER_MAX ? null : new Promise((resolve) => (iterator.freed = resolve))),
      freed: null,
      push(message) {
        if (waiting.length) waiting.shift()({ value: message, done: false });
        else buffer.push(message);
      },
      end() {
        client._iterators.delete(iterator);
        iterator.freed?.();
        for (const resolve of waiting.splice(0)) resolve({ value: undefined, done: true });
      },
      next() {
        if (buffer.length) {
          const value = buffer.shift();
          iterator.freed?.();
          return Promise.resolve({ value, done: false });
        }
        if (!client._iterators.has(iterator)) return Promise.resolve({ value: undefined, done: true });
        return new Promise((resolve) => waiting.push(resolve));
      },
      return() {
        iterator.end();
        return Promise.resolve({ value: undefined, done: true });
      },
      [Symbol.asyncIterator]() {
        return iterator;
      },
    };
    if (this.state.name !== 'closed') this._iterators.add(iterator);
    return iterator;
  }

  _setState(state) {
    this.state = state;
    this._emit('state', state);
  }

  // The connection.

  /** Connects now, whatever was waited for. */
  reconnect() {
    clearTimeout(this._timer);
    this._drop();
    this._open(++this._epoch);
  }

  /** Resolves when the connection is there; rejects when there will be none. */
  ready() {
    if (this.state.name === 'open') return Promise.resolve(this);
    if (this.state.name === 'closed') return Promise.reject(this._isOver());
    return new Promise((resolve, reject) => {
      const stop = this.on('state', (state) => {
        if (state.name === 'open') resolve(this);
        else if (state.name === 'closed') reject(this._isOver());
        else return;
        stop();
      });
    });
  }

  /** Ends it for good. What was not sent yet is in the store, and is sent by the next client on it. */
  close() {
    this._epoch += 1;
    clearTimeout(this._timer);
    globalThis.removeEventListener?.('online', this._wentOnline);
    this._drop();
    this._end('closed');
    this._store.close();
  }

  _isOver() {
    return new PixiuError('unavailable', `the connection is closed: ${this.state.reason}`);
  }

  _end(reason) {
    this._setState({ name: 'closed', reason });
    for (const each of [...this._asked.values(), ...this._queue.splice(0)]) this._fail(each, this._isOver());
    this._asked.clear();
    for (const iterator of [...this._iterators]) iterator.end();
  }

  /** Lets go of the socket. With a code, goes on as if it had been closed with that. */
  _drop(code = 0) {
    clearTimeout(this._watch);
    const socket = this._socket;
    this._socket = null;
    if (!socket) return;
    socket.onmessage = socket.onclose = socket.onerror = null;
    if (socket.readyState < 2) socket.close();
    if (code) this._closed(code, '');
    else this._unanswered();
  }

  async _load() {
    try {
      await this._store.open();
    } catch (error) {
      console.warn('pixiu: no local store, so nothing is kept', error);
      this._store = new MemoryStore();
    }
    const unsent = await this._kept((store) => store.unsent());
    for (const each of unsent) this._enqueue({ ...each, isKept: true, since: Date.now(), resolve: () => {}, reject: () => {} });
  }

  /** Asks the store; one that fails (a full disk, a connection that the browser has ended) is forsaken. */
  async _kept(ask) {
    const store = this._store;
    try {
      return await ask(store);
    } catch (error) {
      if (store === this._store) this._forsake(error);
      return ask(this._store);
    }
  }

  async _open(epoch) {
    this._setState({ name: 'connecting' });
    this._isLoaded ??= this._load();
    await this._isLoaded;
    const cursor = await this._kept((store) => store.cursor());
    if (epoch !== this._epoch) return;
    const base = (this.url || globalThis.location?.origin || '').replace(/^http/, 'ws');
    const resume = cursor ? `&cursor=${cursor}` : '';
    this._kicked = '';
    this._advice = 0;
    this._cursorSeen = null;
    this._pushes = [];
    let socket;
    try {
      socket = new this._Socket(`${base}/ws?token=${encodeURIComponent(this._token)}${resume}`, 'pixiu.json.v1');
    } catch (error) {
      this._end(error.message);
      return;
    }
    this._socket = socket;
    socket.onmessage = (event) => this._received(JSON.parse(event.data));
    socket.onclose = (event) => this._closed(event.code, event.reason);
    // Some say that a connection failed, and then not that it is closed.
    socket.onerror = () => setTimeout(() => socket === this._socket && socket.readyState !== 1 && this._drop(1006), 200);
    this._hear();
  }

  /** Something was heard: look again later. A browser does not tell when the other side is gone without a word. */
  _hear() {
    clearTimeout(this._watch);
    this._watch = setTimeout(() => {
      this._watch = setTimeout(() => this._drop(1006), SILENCE_MS);
      if (this.state.name === 'open') this.act('user').catch(() => {});
    }, SILENCE_MS);
  }

  _closed(code, reason) {
    clearTimeout(this._watch);
    this._socket = null;
    if (code === 1009) {
      for (const [id, each] of this._asked) {
        this._asked.delete(id);
        this._fail(each, new PixiuError('too_large', 'the server does not take so much at once'));
      }
    }
    this._unanswered();
    const kicked = this._kicked || reason;
    if (code === 4401) this._renewToken();
    else if (code === 4400 || (code === 4403 && !RETURNS.has(kicked))) this._end(kicked || 'bad_request');
    else this._wait(code === 4429 ? 5_000 : 0);
  }

  async _renewToken() {
    const epoch = this._epoch;
    if (!this._refreshToken || this._triedToken) {
      this._end('unauthenticated');
      return;
    }
    this._triedToken = true;
    this._setState({ name: 'connecting' });
    try {
      this._token = await this._refreshToken();
    } catch (error) {
      if (epoch !== this._epoch) return;
      if (LATER.has(error.code) || error.code === undefined) {
        this._triedToken = false;
        this._wait(0);
      } else {
        this._end('unauthenticated');
      }
      return;
    }
    if (epoch === this._epoch) this._open(++this._epoch);
  }

  _wait(atLeastMs) {
    const [first, most] = BACKOFF_MS;
    const step = Math.min(most, first * 2 ** this._failures++);
    const ms = this._advice || Math.max(atLeastMs, step / 2 + (Math.random() * step) / 2);
    this._setState({ name: 'waiting', until: Date.now() + ms });
    const epoch = ++this._epoch;
    this._timer = setTimeout(() => epoch === this._epoch && this._open(epoch), ms);
  }

  // Requests.

  /**
   * Does any action, by its name on the wire. Sends are repeated with one send_id until there is an answer, or for two
   * minutes; reads are repeated after a break; anything else that a break interrupts is 'unavailable', and may be done.
   */
  async act(action, params = {}) {
    const each = { action, params: { ...params }, since: Date.now() };
    if (SENDS.has(action) || action === 'say') each.params.send_id ??= newId();
    each.send_id = each.params.send_id;
    if (this._queue.length >= QUEUE_MAX) throw new PixiuError('busy', `${QUEUE_MAX} requests wait already`);
    if (this.state.name === 'closed') throw this._isOver();
    this._isLoaded ??= this._load();
    await this._isLoaded;
    if (this.state.name === 'closed') throw this._isOver(); // meanwhile
    if (action === 'send' || action === 'gsend') {
      each.isKept = true;
      await this._kept((store) => store.putUnsent({ send_id: each.send_id, action, params: each.params }));
    }
    return new Promise((resolve, reject) => this._enqueue({ ...each, resolve, reject }));
  }

  _enqueue(each) {
    if (this.state.name === 'closed') {
      this._fail(each, this._isOver());
      return;
    }
    each.timer = setTimeout(() => this._giveUp(each), SENDS.has(each.action) ? SEND_MS : REQUEST_MS);
    this._queue.push(each);
    this._pump();
  }

  _giveUp(each) {
    if (each.id !== undefined) this._asked.delete(each.id);
    this._queue = this._queue.filter((other) => other !== each);
    this._fail(each, new PixiuError('unavailable', 'no answer in time'));
  }

  _pump() {
    while (this.state.name === 'open' && this._queue.length && this._asked.size < IN_FLIGHT_MAX) {
      const each = this._queue.shift();
      each.id = this._nextId++;
      this._asked.set(each.id, each);
      this._socket.send(JSON.stringify({ id: each.id, action: each.action, params: each.params }));
    }
  }

  /** The connection is gone: what may be asked again waits for the next one. */
  _unanswered() {
    const again = [];
    for (const each of this._asked.values()) {
      if (SENDS.has(each.action) || READS.has(each.action)) again.push(each);
      else this._fail(each, new PixiuError('unavailable', 'the connection broke before the answer; it may be done'));
    }
    this._asked.clear();
    this._queue.unshift(...again);
  }

  _fail(each, error) {
    clearTimeout(each.timer);
    each.isOver = true;
    if (each.isKept && !LATER.has(error.code)) this._store.dropUnsent(each.send_id).catch(() => {});
    each.reject(error);
  }

  async _answered(frame) {
    const each = this._asked.get(frame.id);
    this._asked.delete(frame.id);
    if (!each) return;
    const { code, message, retry_after_ms: retryMs = 0 } = frame.error ?? {};
    if (LATER.has(code) && SENDS.has(each.action)) {
      await sleep(Math.max(retryMs, 500));
      if (!each.isOver) this._queue.push(each);
    } else if (frame.error) {
      this._fail(each, new PixiuError(code, message, retryMs));
    } else {
      await this._succeed(each, frame.result);
    }
    this._pump();
  }

  async _succeed(each, result) {
    clearTimeout(each.timer);
    if (each.isKept) {
      const { to, group, text, body, kind = 'text', ref, fields } = each.params;
      const said = { message_id: result.message_id, from: this.id, at: result.at, kind, send_id: each.send_id };
      for (const [name, value] of Object.entries({ to, group, text, body, ref, fields })) if (value !== undefined) said[name] = value;
      try {
        await this._take([said]);
        await this._store.dropUnsent(each.send_id);
      } catch (error) {
        this._forsake(error);
      }
      this._emit('sent', { ...result, send_id: each.send_id });
    }
    each.resolve(result);
  }

  // Pushes.

  _received(frame) {
    this._hear();
    if ('id' in frame) {
      if (frame.id !== null) this._answered(frame);
      return;
    }
    const kind = frame.push;
    if (kind === 'kick') this._kicked = frame.reason;
    else if (kind === 'reconnect') this._advice = frame.after_ms;
    else if (kind === 'ping') this._socket?.send('{"action":"pong"}');
    else if (kind === 'contacts') this._told(frame);
    else if (kind === 'urgent') this._hurry(frame.message);
    else if (kind === 'typing' || kind === 'presence' || kind === 'signal') this._emit(kind, frame);
    else {
      this._pushes.push(frame);
      this._drain();
    }
  }

  /** The first push of a connection: everything after it is live. */
  _told({ push, ...contacts }) {
    this.contactsNow = contacts;
    this._failures = 0;
    this._triedToken = false;
    if (this.state.name !== 'open') {
      this._setState({ name: 'open' });
      for (const [room, more] of this._rooms) this.act('enter', { room, ...more }).catch((error) => LATER.has(error.code) || this._rooms.delete(room));
      this._pump();
      this._pay(); // what an earlier program or connection has left
    }
    this._emit('contacts', contacts);
    if (contacts.has_more) this.contacts().catch(() => {}); // the push is the first page
  }

  /** One batch at a time: store, tell, ack. */
  async _drain() {
    if (this._isTaking) return;
    this._isTaking = true;
    try {
      while (this._pushes.length) {
        const epoch = this._epoch;
        const isStored = (each) => each.push === 'message' && each.cursor !== undefined;
        const count = this._pushes.findIndex((each) => !isStored(each));
        const batch = this._pushes.splice(0, count < 0 ? this._pushes.length : Math.max(count, 1));
        const cursor = batch.map((each) => each.cursor).filter(Boolean).pop();
        try {
          if (isStored(batch[0])) await this._take(batch.map((each) => each.message), cursor);
          else await this._event(batch[0]);
        } catch (error) {
          this._forsake(error);
          this._pushes.unshift(...batch);
          continue;
        }
        if (cursor !== undefined && epoch === this._epoch) this._ack(cursor);
      }
    } catch (error) {
      console.error('pixiu: what was pushed could not be stored; it is not acked', error);
      this._socket?.close();
    } finally {
      this._isTaking = false;
    }
  }

  /** The store takes nothing any more (a full disk, say): go on in memory. What it lacks is read from the server again. */
  _forsake(error) {
    if (this._isForsaken) throw error;
    console.warn('pixiu: the local store failed, so nothing is kept from now on', error);
    this._isForsaken = true;
    this._store = new MemoryStore();
  }

  _ack(cursor) {
    this._cursorSeen = cursor;
    if (this._socket?.readyState === 1) this._socket.send(JSON.stringify({ action: 'ack', params: { cursor } }));
  }

  /** Stores messages, and tells of those that are new. */
  async _take(messages, cursor) {
    const { added, places } = await this._store.save(messages.map((each) => rowOf(each, this.id)), cursor);
    for (const place of places) {
      const first = added.filter((row) => row.place === place).sort((a, b) => (a.key < b.key ? -1 : 1))[0];
      await this._store.putGap(place, { ...placeOf(place), after: '0', before: first.message_id });
    }
    for (const { message } of added) if (!this._hurried.delete(message.message_id)) await this._tell(message);
  }

  /**
   * An early copy of an urgent message: delivered at once, before queued messages. The message itself follows with its cursor. It is
   * stored then, in its place, and not delivered a second time.
   */
  _hurry(message) {
    if (this._hurried.has(message.message_id)) return;
    this._hurried.add(message.message_id);
    if (this._hurried.size > SEEN_MAX) this._hurried.delete(this._hurried.values().next().value);
    for (const iterator of this._iterators) iterator.push(message);
    this._show(message);
  }

  async _tell(message) {
    for (const iterator of this._iterators) {
      await iterator.room();
      iterator.push(message);
    }
    this._show(message);
  }

  _show(message) {
    this._emit('message', message);
    if (this._sendsReceipts && message.to === this.id && message.from !== this.id && message.from !== '0' && message.kind !== 'system' && message.kind !== 'delete') this._receiptSoon(message.message_id);
  }

  _receiptSoon(id) {
    this._delivered.push(id);
    if (this._delivered.length > 1) return;
    setTimeout(() => {
      const ids = this._delivered.splice(0);
      for (let at = 0; at < ids.length; at += 500) this.act('receipt', { message_ids: ids.slice(at, at + 500), kind: 'delivered' }).catch(() => {});
    }, 150);
  }

  async _event(frame) {
    if (frame.push === 'message') await this._live(frame.message);
    else if (frame.push === 'recall') await this._recalled(frame);
    else if (frame.push === 'receipt') await this._receipted(frame);
    else if (frame.push === 'gap') await this._gap(frame);
    else if (frame.push === 'resync') await this._resync();
  }

  /** A message without a cursor: said in a room, or by a large group. */
  async _live(message) {
    if (message.group === undefined) {
      if (this._seen.has(message.message_id)) return;
      this._seen.add(message.message_id);
      if (this._seen.size > SEEN_MAX) this._seen.delete(this._seen.values().next().value);
      await this._tell(message);
      return;
    }
    const [last] = await this._store.page(placeKey(message), { limit: 1 });
    if (last && message.prev && compareIds(last.message_id, message.prev) < 0) {
      await this._keepGap({ group: message.group, after: last.message_id, before: message.message_id });
    }
    await this._take([message]);
  }

  async _recalled({ message, message_id: id, cursor }) {
    await this._store.save([rowOf(message, this.id)], cursor);
    await this._store.patch([id], recalled);
    this._emit('recall', { message_id: id, message, ...placeOfMessage(message, this.id) });
  }

  async _receipted(frame) {
    await this._store.patch(frame.message_ids, (each) => {
      if (frame.kind !== 'read') each.delivered_at ??= frame.at;
      if (frame.kind !== 'delivered') each.read_at ??= frame.at;
    });
    const { push, ...receipt } = frame;
    this._emit('receipt', receipt);
  }

  async _gap({ push, ...gap }) {
    if (gap.with !== undefined || gap.group !== undefined) await this._keepGap(gap);
    else if (gap.inbox !== undefined) await this._resync({ keepsCursor: true });
    else this._emit('gap', gap);
  }

  async _keepGap(gap) {
    await this._store.putGap(placeKey(gap), gap);
    this._emit('gap', gap);
  }

  /**
   * What is here may lack something: every conversation is asked for what came behind its last message. That is owed,
   * across restarts, until it was answered.
   */
  async _resync({ keepsCursor = false } = {}) {
    const owed = { ...(await this._store.owed()) }; // before anything newer is stored
    for (const { place, last } of await this._store.conversations()) if (place[0] !== 'r') owed[place] ??= last.message_id;
    await this._store.owe(owed);
    if (!keepsCursor) {
      await this._store.save([], this._cursorSeen);
      if (this._cursorSeen) this._ack(this._cursorSeen);
    }
    this._pay();
  }

  /** Asks for what is owed. A server that is busy, or away, is asked again later; anything else waits for the next connection. */
  async _pay() {
    this._mustPay = true;
    if (this._isPaying) return;
    this._isPaying = true;
    try {
      for (let tries = 0; this._mustPay && this.state.name !== 'closed'; ) {
        this._mustPay = false;
        const owed = await this._store.owed();
        if (!owed) continue;
        try {
          await this._catchUpAll(await this._withStrangers(owed));
          if (this._mustPay) continue; // meanwhile more is owed
          await this._store.owe(null);
          this._emit('resync', {});
        } catch (error) {
          if (!LATER.has(error.code)) throw error;
          this._mustPay = true;
          await sleep(Math.min(AGAIN_MS[1], AGAIN_MS[0] * 2 ** tries++));
        }
      }
    } catch (error) {
      if (this.state.name !== 'closed') console.warn('pixiu: what may be missing could not be asked for; the next connection does', error);
    } finally {
      this._isPaying = false;
    }
  }

  /** With those who have said something unread, and of whom nothing is here. */
  async _withStrangers(owed) {
    const { contacts, others } = await this._all('contacts', ['contacts', 'others']);
    const unread = [...contacts, ...others].filter((each) => each.unread).map((each) => placeKey(each.group !== undefined ? each : { with: each.user }));
    return { ...Object.fromEntries(unread.map((place) => [place, '0'])), ...owed };
  }

  async _catchUpAll(owed) {
    const lasts = Object.entries(owed).map(([place, last]) => [placeOf(place), last]);
    for (let at = 0; at < lasts.length; at += PAGE) {
      const some = lasts.slice(at, at + PAGE);
      try {
        await this._sync(some);
      } catch (error) {
        if (!(error instanceof PixiuError) || LATER.has(error.code)) throw error;
        for (const each of some) await this._sync([each]).catch((reason) => this._mayNot(reason));
      }
    }
  }

  /** No member any more, or no such user: nothing to catch up with. */
  _mayNot(error) {
    if (!(error instanceof PixiuError) || LATER.has(error.code)) throw error;
  }

  async _sync(lasts) {
    let left = lasts;
    while (left.length) {
      const params = { with: {}, group: {}, limit: PAGE };
      for (const [place, last] of left) {
        if (place.group !== undefined) params.group[place.group] = last;
        else params.with[place.with] = last;
      }
      const { messages, gaps, has_more: hasMore } = await this.act('sync', params);
      await this._covered(left, messages, gaps);
      for (const gap of gaps) await this._keepGap(gap);
      const { added } = await this._store.save(messages.map((each) => rowOf(each, this.id)));
      for (const { message } of added.sort((a, b) => (a.key < b.key ? -1 : 1))) await this._tell(message);
      if (!hasMore || !messages.length) return;
      const newest = new Map();
      for (const each of messages) {
        const key = placeKey(placeOfMessage(each, this.id));
        if (!newest.has(key) || compareIds(newest.get(key), each.message_id) < 0) newest.set(key, each.message_id);
      }
      left = left.filter(([place]) => place.with !== undefined && newest.has(placeKey(place))).map(([place]) => [place, newest.get(placeKey(place))]);
    }
  }

  /** What a sync has brought leaves no gap where it lies: from the last message that was here, or from the gap it tells of. */
  async _covered(lasts, messages, gaps) {
    const newest = new Map();
    for (const each of messages) {
      const key = placeKey(placeOfMessage(each, this.id));
      if (!newest.has(key) || compareIds(newest.get(key), each.message_id) < 0) newest.set(key, each.message_id);
    }
    const lowest = new Map([...lasts.map(([place, last]) => [placeKey(place), last]), ...gaps.map((gap) => [placeKey(gap), gap.before])]);
    for (const [key, high] of newest) await this._trim(key, lowest.get(key) ?? high, high);
  }

  /** Everything from `low` to `high` is here: gaps of that place end above or below it. */
  async _trim(place, low, high) {
    for (const gap of await this._store.gaps(place)) {
      if (compareIds(gap.before, low) <= 0 || compareIds(gap.before, high) > 0) continue;
      await this._store.dropGap(place, gap);
      if (compareIds(gap.after, low) < 0) await this._store.putGap(place, { ...gap, before: low });
    }
  }

  // What is here.

  /** Conversations of the local store: `[{ place, last }]`, where `place` is a key like `u:bob` and `last` a message. */
  async conversations() {
    await (this._isLoaded ??= this._load());
    return this._store.conversations();
  }

  /** Messages of a conversation from the local store, newest first, and all its gaps. */
  async local(place, { before, limit = PAGE } = {}) {
    await (this._isLoaded ??= this._load());
    const key = placeKey(place);
    return { messages: await this._store.page(key, { before, limit }), gaps: await this._store.gaps(key) };
  }

  /** A message of the local store by its id, or null. */
  async message(id) {
    await (this._isLoaded ??= this._load());
    return this._store.get(id);
  }

  /** Sends that have no answer yet: `[{ send_id, action, params }]`. */
  async unsent() {
    await (this._isLoaded ??= this._load());
    return this._store.unsent();
  }

  /** Makes a conversation that is not here, or was left behind, current: newest page and a gap, or forward pages. */
  async catchUp(place) {
    await (this._isLoaded ??= this._load());
    const [last] = await this._store.page(placeKey(place), { limit: 1 });
    await this._sync([[place, last?.message_id ?? '0']]);
  }

  /** Reads the newest page of a conversation again: receipts that came while this device was away are in it. */
  async refresh(place, { limit = PAGE } = {}) {
    const page = await this.act('history', { ...place, limit });
    const { added } = await this._store.save(page.messages.map((each) => rowOf(each, this.id)));
    if (page.min) await this._trim(placeKey(place), page.has_more ? page.min : '0', page.max);
    for (const { message } of added.sort((a, b) => (a.key < b.key ? -1 : 1))) await this._tell(message);
  }

  /**
   * Brings a message and a page around it into the local store; what lies further away stays a gap. False: there is no
   * such message in that conversation, or one may not read it.
   */
  async around(place, id, { limit = PAGE } = {}) {
    await (this._isLoaded ??= this._load());
    if (await this._store.get(id)) return true;
    const key = placeKey(place);
    const holds = (gap) => compareIds(gap.after, id) < 0 && compareIds(id, gap.before) < 0;
    let gap = (await this._store.gaps(key)).find(holds);
    if (!gap) {
      await this.catchUp(place);
      if (await this._store.get(id)) return true;
      gap = (await this._store.gaps(key)).find(holds);
      if (!gap) return false;
    }
    const older = await this.act('history', { ...place, before: String(BigInt(id) + 1n), after: gap.after, limit, direction: 'backward' });
    if (older.max !== id) return false;
    const newer = await this.act('history', { ...place, after: id, before: gap.before, limit, direction: 'forward' });
    await this._store.save([...older.messages, ...newer.messages].map((each) => rowOf(each, this.id)));
    await this._store.dropGap(key, gap);
    if (newer.has_more) await this._store.putGap(key, { ...gap, after: newer.max });
    if (older.has_more) await this._store.putGap(key, { ...gap, before: older.min });
    this._emit('gap', { ...gap, isClosed: !newer.has_more && !older.has_more });
    return true;
  }

  /**
   * Closes a gap by one page. Gives what was loaded, and what is left of the gap, or null. One page at a time: who asks
   * meanwhile gets the same answer.
   */
  closeGap(gap, { limit = PAGE } = {}) {
    const key = `${placeKey(gap)} ${gap.before}`;
    if (!this._loading.has(key)) this._loading.set(key, this._closeGap(gap, limit).finally(() => this._loading.delete(key)));
    return this._loading.get(key);
  }

  async _closeGap(gap, limit) {
    const where = gap.group !== undefined ? { group: gap.group } : { with: gap.with };
    const place = placeKey(where);
    const page = await this.act('history', { ...where, before: gap.before, after: gap.after, limit, direction: 'backward' });
    await this._store.save(page.messages.map((each) => rowOf(each, this.id)));
    const left = page.has_more && page.min ? { ...gap, before: page.min } : null;
    await this._trim(place, left ? left.before : gap.after, gap.before);
    this._emit('gap', left ?? { ...gap, isClosed: true });
    return { messages: page.messages, gap: left };
  }

  // Actions with something to remember.

  async enter(params) {
    const { room, ...more } = params;
    const result = await this.act('enter', params);
    this._rooms.set(room, more);
    return result;
  }

  async leave(params) {
    this._rooms.delete(params.room);
    return this.act('leave', params);
  }

  async recall(params) {
    const result = await this.act('recall', params);
    const id = String(params.message_id);
    await this._store.patch([id], recalled);
    this._emit('recall', { message_id: id });
    return result;
  }

  /** All pages of contacts, groups and unread strangers; a page of them with `{ cursor, limit }`. */
  async contacts(params) {
    if (params?.cursor !== undefined || params?.limit !== undefined) return this.act('contacts', params);
    this.contactsNow = await this._all('contacts', ['contacts', 'others', 'invitations']);
    this._emit('contacts', this.contactsNow);
    return this.contactsNow;
  }

  /** All pages of one's scheduled messages; a page of them with `{ cursor, limit }`. */
  async scheduled(params) {
    if (params?.cursor !== undefined || params?.limit !== undefined) return this.act('scheduled', params);
    return this._all('scheduled', ['scheduled']);
  }

  /** A group with a page of its members and, for admins, every request to join; one page of these with `requests_cursor`. */
  async group(params) {
    const found = await this.act('group', params);
    if (params?.requests_cursor !== undefined) return found;
    for (let cursor = found.requests_cursor; cursor;) {
      const page = await this.act('group', { group: params.group, requests_cursor: cursor });
      found.requests.push(...page.requests);
      cursor = page.requests_cursor;
    }
    return found;
  }

  /** Every page of a list, joined. */
  async _all(action, lists) {
    const found = Object.fromEntries(lists.map((name) => [name, []]));
    let cursor;
    do {
      const page = await this.act(action, cursor ? { cursor } : {});
      for (const name of lists) found[name].push(...(page[name] ?? []));
      cursor = page.has_more ? page.cursor : undefined;
    } while (cursor);
    return found;
  }

  /** Asks the HTTP API as this user: `http('/v1/history', { query: { with: 'bob' } })`. */
  http(path, options = {}) {
    return request(path, { url: this.url, token: this._token, ...options });
  }
}

for (const action of ACTIONS) {
  const name = action.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
  if (!(name in Client.prototype)) {
    Client.prototype[name] = function (params = {}) {
      return this.act(action, params);
    };
  }
}
