/**
 * What the chat shows, apart from how: conversations, the open thread, drafts, who types.
 *
 * It listens to the SDK's client and tells its own listener when something changed. Bounds: a thread holds the pages
 * that were scrolled to; a room keeps its newest 500 lines, as nobody else keeps any.
 */
import { PixiuError, compareIds, placeKey, placeOf, placeOfMessage } from '/pixiu.js';

const PAGE = 60;
const ROOM_LINES_MAX = 500;
const READS_MAX = 10; // tries of reading a thread in which messages arrive all the time
const TYPING_MS = 4000;
const ROOMS_KEPT_AS = 'pixiu.rooms';
const SETTLE_MS = 1500;
const RECENT_PAGES = 5; // of the newest private messages, read for the conversations among them
const MISSING = new Set(['not_found', 'forbidden', 'bad_request']); // what no other try mends
const SYSTEM = 'u:0'; // what admins say in the system's name, and what is pushed
/** Is it about a group or a contact, and nobody's words? */
export const isNotice = (message) => message.kind === 'system' && message.text === undefined;
/** Did `user` leave a group by it? */
const isQuitOf = (message, user) => isNotice(message) && message.fields?.action === 'quit' && message.fields.user === user;
const isShown = (message) => message.kind !== 'delete';
const isBetweenTwo = (message) => isNotice(message) && message.group === undefined; // someone added or removed one
const isSaid = (message) => message.kind !== 'delete' && !isNotice(message);

export class Chat {
  constructor(client) {
    this.client = client;
    this.me = client.id;
    this.rows = new Map(); // key → conversation
    this.thread = null;
    this.pending = new Map(); // key → sends without an answer
    this.drafts = new Map();
    this.quotes = new Map(); // message_id → message, or null while it is looked for
    this._roomLines = new Map();
    this._changed = () => {};
    this._isDue = false;
    this._settledAt = Infinity;
    this._stops = [
      client.on('message', (message) => this._said(message)),
      client.on('sent', () => this._tell()),
      client.on('contacts', (contacts) => this._list(contacts)),
      client.on('receipt', (receipt) => this._receipt(receipt)),
      client.on('recall', ({ message_id: id }) => this._recalled(id)),
      client.on('typing', (event) => this._types(event)),
      client.on('presence', (event) => this._presence(event)),
      client.on('gap', () => this._reload()),
      client.on('resync', () => this._reload()),
      client.on('state', (state) => state.name === 'open' && this._opened()),
    ];
    this._onVisible = () => document.visibilityState === 'visible' && this._markRead();
    document.addEventListener('visibilitychange', this._onVisible);
    this._start();
  }

  close() {
    for (const stop of this._stops) stop();
    document.removeEventListener('visibilitychange', this._onVisible);
    clearTimeout(this._settling);
  }

  /** Calls back, at most once per turn, when there is something new to show. */
  whenChanged(listener) {
    this._changed = listener;
  }

  _tell() {
    if (this._isDue) return;
    this._isDue = true;
    queueMicrotask(() => {
      this._isDue = false;
      this._changed();
    });
  }

  async _start() {
    for (const { place, last } of await this.client.conversations()) if (!isQuitOf(last, this.me)) this._touch(place, last);
    for (const { send_id: sendId, params } of await this.client.unsent()) {
      const key = placeKey(params.group !== undefined ? { group: params.group } : { with: params.to });
      this._row(key);
      this._pendingOf(key).push({ send_id: sendId, text: params.text ?? '', ref: params.ref, at: Date.now() });
    }
    for (const room of this._keptRooms()) this.enterRoom(room).catch(() => {});
    if (this.client.state.name === 'open') {
      this._list(this.client.contactsNow);
      this._opened();
      this.client.contacts().catch(() => {}); // what is known may be old
    }
    this._tell();
  }

  // Conversations.

  /** All of them, the latest first. */
  list() {
    const when = (row) => row.last?.at ?? row.at ?? 0;
    return [...this.rows.values()].filter((row) => !this._isNothing(row)).sort((a, b) => when(b) - when(a) || (a.name < b.name ? -1 : 1));
  }

  /** Somebody or something asked for by name that is not there, or not for one. */
  _isNothing(row) {
    return row.isMissing && !row.last && !row.isContact && !row.unread;
  }

  unread() {
    let sum = 0;
    for (const row of this.rows.values()) sum += row.unread;
    return sum;
  }

  _row(key) {
    let row = this.rows.get(key);
    if (!row) {
      const place = placeOf(key);
      const id = place.with ?? place.group ?? place.room;
      row = { key, place, id, name: key === SYSTEM ? 'Pixiu' : id, unread: 0, last: null, at: 0, state: null, typing: new Map(), isContact: false, members: null };
      this.rows.set(key, row);
    }
    return row;
  }

  _touch(key, message) {
    const row = this._row(key);
    if (isShown(message) && !(row.last && isBetweenTwo(message)) && (!row.last || isBetweenTwo(row.last) || compareIds(row.last.message_id, message.message_id) <= 0)) row.last = message;
    return row;
  }

  _list({ contacts, others }) {
    const listed = new Set();
    for (const each of contacts) {
      const row = this._row(each.group !== undefined ? `g:${each.group}` : `u:${each.user}`);
      Object.assign(row, { name: each.name || row.id, at: each.at, unread: each.unread, isContact: true });
      listed.add(row.key);
    }
    for (const each of others) {
      this._row(`u:${each.user}`).unread = each.unread;
      listed.add(`u:${each.user}`);
    }
    for (const row of this.rows.values()) {
      if (listed.has(row.key) || row.place.room !== undefined) continue;
      row.unread = 0;
      row.isContact = false;
    }
    if (this.thread && this._isLookedAt(this.thread.key)) this._markRead();
    this._askPresence();
    this._peek();
    this._tell();
  }

  /** A line for conversations of which nothing is here yet. */
  async _peek() {
    const bare = [...this.rows.values()].filter((row) => !row.last && row.place.room === undefined && !row.isPeeked && !row.isMissing).slice(0, 30);
    for (const row of bare) {
      row.isPeeked = true;
      try {
        await this.client.catchUp(row.place);
        const { messages } = await this.client.local(row.place, { limit: 5 });
        const last = messages.find((message) => isShown(message) && !isBetweenTwo(message));
        if (last) this._touch(row.key, last);
        if (this.thread?.key === row.key) await this._reload();
        this._tell();
      } catch {
        row.isPeeked = false;
      }
    }
  }

  _opened() {
    // What waited comes now, and is in the counts already: they are asked for again when it has come.
    this._settledAt = Date.now() + SETTLE_MS;
    clearTimeout(this._settling);
    this._settling = setTimeout(() => this.client.contacts().catch(() => {}), SETTLE_MS);
    if (this.thread?.error && !this.thread.messages.length) this.openAgain();
    else if (this.thread) this._refresh();
    this._findRecent().catch(() => {});
  }

  /**
   * Conversations that this browser has never seen: from the newest private messages, which the server has for all of
   * one's devices. Groups are in the contacts. It looks once, and no further than where nothing new is found.
   */
  async _findRecent() {
    if (this._hasLooked) return;
    this._hasLooked = true;
    const isFresh = ![...this.rows.values()].some((row) => row.last);
    let before;
    try {
      for (let page = 0; page < RECENT_PAGES; page += 1) {
        const known = this.rows.size;
        const { messages, has_more: hasMore, min } = await this.client.history(before ? { before } : {});
        for (const message of messages) this._touch(placeKey(placeOfMessage(message, this.me)), message);
        this._tell();
        if (!hasMore || (!isFresh && this.rows.size === known)) return;
        before = min;
      }
    } catch (error) {
      this._hasLooked = false; // the next connection may tell
      throw error;
    }
  }

  /** Receipts that came while nobody was here. */
  async _refresh() {
    const { thread } = this;
    if (!thread || thread.row.place.with === undefined) return;
    const lacks = thread.messages.some((message) => message.from === this.me && isSaid(message) && !message.read_at);
    if (lacks) await this.client.refresh(thread.row.place).catch(() => {});
    await this._reload();
  }

  _askPresence() {
    clearTimeout(this._asking);
    this._asking = setTimeout(async () => {
      try {
        const { states } = await this.client.presence();
        for (const row of this.rows.values()) if (row.place.with !== undefined) row.state = states[row.id] ?? null;
        this._tell();
      } catch {
        // It is only a dot.
      }
    }, 50);
  }

  _presence(event) {
    if (event.user !== undefined) {
      const row = this.rows.get(`u:${event.user}`);
      if (row) row.state = event.state;
    } else if (event.room !== undefined) {
      const row = this.rows.get(`r:${event.room}`);
      if (row && event.members !== undefined) row.members = event.users ?? event.members;
    }
    this._tell();
  }

  _types(event) {
    const row = this.rows.get(event.group !== undefined ? `g:${event.group}` : `u:${event.with}`);
    if (!row) return;
    const who = event.from ?? event.with;
    clearTimeout(row.typing.get(who));
    row.typing.set(who, setTimeout(() => {
      row.typing.delete(who);
      this._tell();
    }, TYPING_MS));
    this._tell();
  }

  // Messages.

  _said(message) {
    const key = placeKey(placeOfMessage(message, this.me));
    if (isQuitOf(message, this.me)) {
      this.rows.delete(key);
      this._tell();
      return;
    }
    const row = this._touch(key, message);
    if (message.send_id) this._forgetPending(key, message.send_id);
    clearTimeout(row.typing.get(message.from));
    row.typing.delete(message.from);
    if (message.room !== undefined) this._keepRoomLine(key, message);
    if (isNotice(message)) this._notice(row);
    const isOpen = this.thread?.key === key;
    if (isOpen) {
      if (message.room !== undefined) this.thread.messages = this._roomLines.get(key);
      else this._insert(message);
    }
    if (isSaid(message) && message.from !== this.me) {
      if (isOpen && this._isLookedAt(key)) this._markRead();
      else if (message.room !== undefined || Date.now() > this._settledAt) row.unread += 1;
    }
    this._tell();
  }

  _keepRoomLine(key, message) {
    const lines = [...(this._roomLines.get(key) ?? []), message].slice(-ROOM_LINES_MAX);
    this._roomLines.set(key, lines);
  }

  /** The list of groups and contacts may have changed. */
  _notice(row) {
    clearTimeout(this._noticed);
    this._noticed = setTimeout(() => this.client.contacts().catch(() => {}), 200);
    if (this.thread?.key === row.key && this.thread.group) this.loadGroup();
  }

  _insert(message) {
    const { messages } = this.thread;
    let at = messages.length;
    while (at > 0 && compareIds(messages[at - 1].message_id, message.message_id) > 0) at -= 1;
    if (messages[at - 1]?.message_id === message.message_id) return;
    this.thread.messages = [...messages.slice(0, at), message, ...messages.slice(at)];
    if (message.from !== this.me) this.thread.arrived += 1;
    this.thread.changes += 1;
  }

  _change(change) {
    if (!this.thread) return;
    this.thread.messages = this.thread.messages.map(change);
    this.thread.changes += 1;
  }

  _receipt({ message_ids: ids, kind, at }) {
    const told = new Set(ids);
    const change = (message) => told.has(message.message_id) && {
      ...message,
      ...(kind !== 'read' && { delivered_at: message.delivered_at ?? at }),
      ...(kind !== 'delivered' && { read_at: message.read_at ?? at }),
    };
    this._change((message) => change(message) || message);
    for (const row of this.rows.values()) if (row.last && told.has(row.last.message_id)) row.last = change(row.last);
    this._tell();
  }

  _recalled(id) {
    const change = (message) => (message.message_id === id ? { ...message, recalled: true, text: undefined } : message);
    this._change(change);
    for (const row of this.rows.values()) if (row.last) row.last = change(row.last);
    if (this.quotes.has(id)) this.quotes.set(id, { ...this.quotes.get(id), recalled: true });
    this._tell();
  }

  // The open thread.

  /** Opens a conversation, at a message if one is named; null closes the open one. */
  async open(key, at = null) {
    if (this.thread?.key !== key) await this._openNew(key);
    if (at && this.thread?.key === key) await this._showAt(this.thread, at);
  }

  /** Loads what is around a message, and has it shown. */
  async _showAt(thread, id) {
    if (!(await this.client.around(thread.row.place, id))) throw new PixiuError('not_found', `message ${id} is not there any more`);
    if (this.thread !== thread) return;
    if (!thread.from || compareIds(id, thread.from) < 0) thread.from = id;
    thread.target = id;
    thread.marked = id;
    await this._reload();
  }

  /** Opens once more what could not be opened. */
  openAgain() {
    if (this.thread) this._openNew(this.thread.key).catch((error) => this._wrong(error));
  }

  async _openNew(key) {
    const left = this.thread?.row;
    if (left && left.key !== key && this._isNothing(left)) this.rows.delete(left.key);
    if (key === null) {
      this.thread = null;
      this._tell();
      return;
    }
    const row = this._row(key);
    row.isMissing = false;
    this.thread = {
      key, row, messages: [], from: null, gaps: [], arrived: 0, changes: 0, reading: Promise.resolve(), hasOlder: false, isLoading: true, busy: new Set(), group: null,
      unreadAtOpen: row.unread, firstUnread: null, error: null, isMissing: false, target: null, marked: null,
    };
    this._tell();
    if (row.place.room !== undefined) {
      this.thread.messages = this._roomLines.get(key) ?? [];
      this.thread.isLoading = false;
      row.unread = 0;
      this.enterRoom(row.id).catch((error) => this._wrong(error));
      this._tell();
      return;
    }
    await this._reload();
    const { thread } = this;
    if (thread?.key !== key) return;
    if (!thread.messages.length) {
      await this.client.catchUp(row.place).catch((error) => this.thread === thread && this._wrong(error));
      row.isPeeked = true;
      await this._reload();
    }
    if (this.thread !== thread) return;
    thread.isLoading = false;
    if (thread.isMissing) {
      this._tell();
      return;
    }
    this._findFirstUnread(thread);
    if (row.place.group !== undefined) this.loadGroup();
    this._markRead();
    this._refresh();
    this._tell();
  }

  _wrong(error) {
    const { thread } = this;
    if (thread) {
      thread.error = error;
      thread.isMissing = thread.row.isMissing = MISSING.has(error.code) && !thread.messages.length;
    }
    this._tell();
  }

  _findFirstUnread(thread) {
    let left = thread.unreadAtOpen;
    for (let at = thread.messages.length - 1; at >= 0 && left > 0; at -= 1) {
      const message = thread.messages[at];
      if (message.from === this.me || !isSaid(message)) continue;
      thread.firstUnread = message.message_id;
      left -= 1;
    }
  }

  /** Reads the open thread from the local store again, as far back as it was shown. */
  _reload() {
    return this._inTurn(async (thread) => {
      const { messages, gaps, isFull } = await this._steadily(thread, () => this._shown(thread));
      if (this.thread !== thread) return;
      thread.hasOlder = isFull;
      this._show(thread, messages.reverse(), gaps);
      this._tell();
    });
  }

  /** One reading of the open thread at a time: two that ran together would each show what the other had found. */
  _inTurn(read) {
    const { thread } = this;
    if (!thread || thread.row.place.room !== undefined) return Promise.resolve();
    const turn = thread.reading.then(() => this.thread === thread && read(thread));
    thread.reading = turn.catch(() => {});
    return turn;
  }

  /** What a reading gives once nothing has come while it ran: what came is in the store, and may not be in the answer. */
  async _steadily(thread, read) {
    for (let tries = 0; ; tries += 1) {
      const { changes } = thread;
      const answer = await read();
      if (thread.changes === changes || tries === READS_MAX) return answer;
    }
  }

  /** From the local store, newest first, everything down to where the thread is shown from. */
  async _shown(thread) {
    const messages = [];
    let page;
    do {
      page = await this.client.local(thread.row.place, { before: messages[messages.length - 1]?.message_id, limit: PAGE });
      messages.push(...page.messages);
    } while (page.messages.length === PAGE && thread.from && compareIds(messages[messages.length - 1].message_id, thread.from) > 0);
    return { messages, gaps: page.gaps, isFull: page.messages.length === PAGE };
  }

  /** Messages, oldest first, and of all gaps those that border on them. */
  _show(thread, messages, gaps) {
    thread.messages = messages;
    const oldest = messages[0]?.message_id;
    if (oldest !== undefined && (!thread.from || compareIds(oldest, thread.from) < 0)) thread.from = oldest;
    thread.gaps = oldest === undefined ? [] : gaps.filter((gap) => compareIds(gap.before, oldest) >= 0);
  }

  /** The page before the oldest that is shown: from the local store, else from the server. */
  async loadOlder() {
    const { thread } = this;
    if (!thread || thread.isLoading) return;
    const gap = thread.gaps.find((each) => each.before === thread.messages[0]?.message_id);
    if (gap) await this.loadGap(gap);
    else if (thread.hasOlder) {
      thread.isLoading = true;
      await this._inTurn(() => this._readOlder(thread)).finally(() => {
        thread.isLoading = false;
        this._tell();
      });
    }
  }

  async _readOlder(thread) {
    const before = thread.messages[0].message_id;
    const { messages, gaps } = await this._steadily(thread, () => this.client.local(thread.row.place, { before, limit: PAGE + 1 }));
    thread.hasOlder = messages.length > PAGE;
    this._show(thread, [...messages.slice(0, PAGE).reverse(), ...thread.messages], gaps);
  }

  /** Closes a gap by one page. */
  async loadGap(gap) {
    const { thread } = this;
    if (thread.busy.has(gap.before)) return;
    thread.busy.add(gap.before);
    this._tell();
    try {
      const { messages } = await this.client.closeGap(gap);
      if (this.thread !== thread) return;
      // What was loaded above the oldest that is shown is shown from now on.
      const lowest = messages[messages.length - 1]?.message_id;
      if (lowest && thread.from && compareIds(lowest, thread.from) < 0) thread.from = lowest;
      await this._reload();
    } finally {
      thread.busy.delete(gap.before);
      this._tell();
    }
  }

  async loadGroup() {
    const { thread } = this;
    try {
      const group = await this.client.group({ group: thread.row.id });
      thread.group = group;
      thread.row.members = group.member_count;
      if (group.is_large) await this.client.enter({ room: `g:${thread.row.id}` });
    } catch (error) {
      thread.error = error;
    }
    this._tell();
  }

  _isLookedAt(key) {
    return this.thread?.key === key && document.visibilityState === 'visible';
  }

  /** The open conversation is read: for oneself, and told to who wrote it. */
  _markRead() {
    const { thread } = this;
    if (!thread || document.visibilityState !== 'visible') return;
    const { row } = thread;
    const count = Math.max(row.unread, 1);
    row.unread = 0;
    if (row.place.room !== undefined) return;
    clearTimeout(this._reading);
    this._reading = setTimeout(() => {
      this.client.read(row.place).catch(() => {});
      if (row.place.with === undefined || row.id === this.me || row.key === SYSTEM) return;
      const incoming = thread.messages.filter((message) => message.from !== this.me && isSaid(message) && !message.recalled && !message.seen);
      const ids = incoming.slice(-Math.max(count, 50)).map((message) => message.message_id);
      for (const message of incoming) message.seen = true;
      if (ids.length) this.client.receipt({ message_ids: ids, kind: 'both' }).catch(() => {});
    }, 60);
    this._tell();
  }

  // What one does.

  _pendingOf(key) {
    if (!this.pending.has(key)) this.pending.set(key, []);
    return this.pending.get(key);
  }

  _forgetPending(key, sendId) {
    this.pending.set(key, this._pendingOf(key).filter((each) => each.send_id !== sendId));
  }

  /** Says something in the open conversation. */
  async say(text, { ref } = {}) {
    const { row } = this.thread;
    if (row.place.room !== undefined) {
      await this.client.say({ room: row.id, text });
      return;
    }
    const each = { send_id: crypto.randomUUID(), text, ref, at: Date.now() };
    this._pendingOf(row.key).push(each);
    this._tell();
    await this._send(row, each);
    if (row.place.with !== undefined && !row.isContact && row.id !== this.me) this.client.contact({ user: row.id }).then(() => this.client.contacts()).catch(() => {});
  }

  async _send(row, each) {
    const content = { text: each.text, send_id: each.send_id, ...(each.ref && { ref: each.ref }) };
    each.error = null;
    this._tell();
    try {
      await (row.place.group !== undefined ? this.client.gsend({ group: row.id, ...content }) : this.client.send({ to: row.id, ...content }));
      this._forgetPending(row.key, each.send_id);
    } catch (error) {
      each.error = error;
    }
    this._tell();
  }

  /** Sends once more what was refused; with its send_id, so that it is said once. */
  again(each) {
    return this._send(this.thread.row, each);
  }

  discard(each) {
    this._forgetPending(this.thread.key, each.send_id);
    this._tell();
  }

  /** Tells the others that one types, every two seconds at most. */
  type() {
    const { row } = this.thread ?? {};
    if (!row || row.place.room !== undefined || Date.now() - (this._typed ?? 0) < 2000) return;
    this._typed = Date.now();
    this.client.typing(row.place).catch(() => {});
  }

  /** The message that another one answers, if it can be found. */
  quote(id) {
    if (!this.quotes.has(id)) {
      this.quotes.set(id, null);
      this._findQuote(id);
    }
    return this.quotes.get(id);
  }

  async _findQuote(id) {
    const { thread } = this;
    let found = await this.client.message(id);
    if (!found && thread) {
      const page = await this.client.history({ ...thread.row.place, before: String(BigInt(id) + 1n), limit: 1 }).catch(() => ({ messages: [] }));
      found = page.messages.find((message) => message.message_id === id) ?? null;
    }
    if (found) this.quotes.set(id, found);
    this._tell();
  }

  // People, groups, rooms.

  async addPerson(user) {
    if (user !== this.me) {
      await this.client.contact({ user });
      await this.client.contacts();
    }
    return this._row(`u:${user}`).key;
  }

  async createGroup(name, members) {
    const made = await this.client.createGroup({ name, ...(members.length && { members }) });
    await this.client.contacts();
    return `g:${made.group}`;
  }

  /** Joins, or asks to; null where an admin has to say yes first. */
  async joinGroup(group) {
    const joined = await this.client.join({ group });
    if (joined.is_requested) return null;
    await this.client.contacts();
    return this._row(`g:${group}`).key;
  }

  /** Leaves a group; an owner names the member who becomes the owner first. */
  async quitGroup(group, newOwner = '') {
    if (newOwner) await this.client.manage({ group, user: newOwner, op: 'transfer' });
    await this.client.quit({ group });
    this.rows.delete(`g:${group}`);
    this._tell();
  }

  _keptRooms() {
    try {
      return JSON.parse(sessionStorage.getItem(`${ROOMS_KEPT_AS}.${this.me}`)) ?? [];
    } catch {
      return [];
    }
  }

  _keepRooms(change) {
    const rooms = new Set(this._keptRooms());
    change(rooms);
    sessionStorage.setItem(`${ROOMS_KEPT_AS}.${this.me}`, JSON.stringify([...rooms]));
  }

  async enterRoom(room) {
    const row = this._row(`r:${room}`);
    const { members } = await this.client.enter({ room });
    row.members = Math.max(members, row.members ?? 0);
    row.at ||= Date.now();
    this._keepRooms((rooms) => rooms.add(room));
    this._tell();
    return row.key;
  }

  async leaveRoom(room) {
    this._keepRooms((rooms) => rooms.delete(room));
    this.rows.delete(`r:${room}`);
    this._roomLines.delete(`r:${room}`);
    this._tell();
    await this.client.leave({ room });
  }
}
