// What the SDK promises, for browsers and Node alike: one function per promise. It is evaluated, not imported, so that a
// page may run it under its own policy. `storeOf(name)` gives a store; the same name is the same store, as after a restart.
(({ sdk, url, storeOf }) => {
  const { Client, MemoryStore, PixiuError, compareIds, connect } = sdk;
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const unique = (name) => `${name}-${Math.random().toString(36).slice(2, 8)}`;
  const opened = [];

  const check = (is, what) => {
    if (!is) throw new Error(`not so: ${what}`);
  };
  const same = (a, b, what) => check(JSON.stringify(a) === JSON.stringify(b), `${what}: ${JSON.stringify(a)} is not ${JSON.stringify(b)}`);
  const until = async (condition, what, ms = 10_000) => {
    for (const end = Date.now() + ms; !(await condition()); await sleep(10)) check(Date.now() < end, `waited for ${what}`);
  };
  const post = async (path, body, token) => {
    const headers = { 'Content-Type': 'application/json', ...(token && { Authorization: `Bearer ${token}` }) };
    const answer = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  };
  const tokenOf = async (user, more = {}) => (await post('/v1/dev/token', { user, ...more })).token;
  const clientOf = async (user, options = {}) => {
    const client = connect({ url, token: await tokenOf(user, options.claims), ...options });
    opened.push(client);
    client.heard = [];
    client.on('message', (message) => client.heard.push(message.text ?? message.kind));
    await client.ready();
    return client;
  };
  const texts = async (client, place) => (await client.local(place, { limit: 1000 })).messages.map((each) => each.text).filter(Boolean).reverse();
  const range = (name, count) => Array.from({ length: count }, (_, n) => `${name} ${n}`);

  /** Ann has said one thing to Ben, which he has, and then so much that his inbox, of 20, has lost some of it. */
  const missed = async (count) => {
    const [ann, ben] = [unique('ann'), unique('ben')];
    const a = await clientOf(ann);
    const first = await clientOf(ben, { store: storeOf(ben) });
    await a.send({ to: ben, text: 'one' });
    await until(() => first.heard.length === 1, 'the first');
    await sleep(100);
    first.close();
    for (const text of range('missed', count)) await a.send({ to: ben, text });
    return [ann, ben];
  };

  const cases = {
    async every_request_to_join_a_group_is_read_over_all_pages() {
      const group = unique('club');
      const admin = await clientOf(unique('ann'));
      await admin.createGroup({ group, needs_approval: true });
      const asking = range('asking', 50).map((name) => unique(name.replace(' ', '-'.repeat(20))));
      for (const each of asking) await post('/v1/actions/join', { group }, await tokenOf(each));
      const first = await admin.act('group', { group });
      check(first.requests.length < asking.length && first.requests_cursor, 'the first page holds some of them');
      const found = await admin.group({ group });
      same(found.requests.map((each) => each.user).sort(), asking.sort(), 'all of them');
    },

    async two_talk_and_each_message_is_shown_once() {
      const [ann, ben] = [unique('ann'), unique('ben')];
      const a = await clientOf(ann);
      const b = await clientOf(ben);
      const iterated = [];
      const reading = (async () => {
        for await (const message of b.messages()) {
          iterated.push(message.text);
          if (iterated.length === 3) break;
        }
      })();
      for (const text of range('hi', 3)) await a.send({ to: ben, text });
      await reading;
      same(iterated, range('hi', 3), 'iterated');
      await until(() => a.heard.length === 3, 'own messages');
      await sleep(300);
      same([a.heard, b.heard], [range('hi', 3), range('hi', 3)], 'heard');
      const { messages: [last] } = await a.local({ with: ben });
      await until(async () => (await a.message(last.message_id)).delivered_at, 'the receipt of the delivery');
      await b.receipt({ message_ids: [last.message_id], kind: 'read' });
      await until(async () => (await a.message(last.message_id)).read_at, 'the receipt of the reading');
      await a.recall({ message_id: last.message_id });
      await until(async () => (await b.message(last.message_id)).recalled, 'the recall');
      same((await b.message(last.message_id)).text, undefined, 'text of a recalled message');
    },

    async urgent_message_is_shown_before_what_waits_and_once() {
      const [ann, ben] = [unique('ann'), unique('ben')];
      const a = await clientOf(ann);
      let socket;
      const Tapped = class extends WebSocket {
        constructor(...args) {
          super(...args);
          socket = this;
        }
      };
      const store = new MemoryStore();
      let open;
      const gate = new Promise((resolve) => { open = resolve; });
      const save = store.save.bind(store);
      store.save = async (...args) => {
        await gate;
        return save(...args);
      };
      const b = await clientOf(ben, { store, WebSocket: Tapped });
      for (const text of range('hi', 3)) await a.send({ to: ben, text });
      const { message_id, at } = await a.send({ to: ben, text: 'fire', priority: 'high' });
      const message = { message_id, from: ann, to: ben, at, kind: 'text', text: 'fire', priority: 'high' };
      for (let n = 0; n < 2; n += 1) socket.dispatchEvent(new MessageEvent('message', { data: JSON.stringify({ push: 'urgent', message }) }));
      await until(() => b.heard.length === 1, 'the early copy');
      same(b.heard, ['fire'], 'heard while the backlog waits');
      same(await texts(b, { with: ann }), [], 'kept before its turn');
      open();
      await until(() => b.heard.length === 4, 'the backlog');
      await until(async () => (await b.local({ with: ann })).messages.length === 4, 'all of them to be stored');
      same(b.heard, ['fire', ...range('hi', 3)], 'heard');
      same(await texts(b, { with: ann }), [...range('hi', 3), 'fire'], 'kept in order');
    },

    async a_restart_resumes_at_the_cursor_without_repeats() {
      const [ann, ben] = [unique('ann'), unique('ben')];
      const a = await clientOf(ann);
      const first = await clientOf(ben, { store: storeOf(ben) });
      await a.send({ to: ben, text: 'one' });
      await until(() => first.heard.length === 1, 'the first');
      await until(async () => (await first.local({ with: ann })).messages.length === 1, 'the first to be stored');
      await sleep(100);
      first.close();
      for (const text of range('away', 5)) await a.send({ to: ben, text });
      const second = await clientOf(ben, { store: storeOf(ben) });
      await until(() => second.heard.length === 5, 'what came meanwhile');
      await sleep(200);
      same(second.heard, range('away', 5), 'heard after the restart');
      same(await texts(second, { with: ann }), ['one', ...range('away', 5)], 'kept');
    },

    async a_short_private_gap_is_closed_forward_after_a_restart() {
      const [ann, ben] = await missed(60);
      const second = await clientOf(ben, { store: storeOf(ben) });
      await until(() => second.heard.length === 60, 'what was missed');
      same(await texts(second, { with: ann }), ['one', ...range('missed', 60)], 'kept');
      same((await second.local({ with: ann })).gaps.filter((gap) => gap.after !== '0'), [], 'gaps');
    },

    async a_group_that_one_has_left_hides_nothing_that_was_missed_elsewhere() {
      const [ann, ben, carl] = [unique('ann'), unique('ben'), unique('carl')];
      const a = await clientOf(ann);
      const c = await clientOf(carl);
      const { group } = await a.createGroup({ members: [ben] });
      const first = await clientOf(ben, { store: storeOf(ben) });
      await a.gsend({ group, text: 'in the group' });
      await a.send({ to: ben, text: 'one' });
      await until(() => first.heard.includes('one') && first.heard.includes('in the group'), 'both');
      await sleep(100);
      first.close();
      await a.manage({ group, op: 'remove', user: ben });
      await c.send({ to: ben, text: 'from a stranger' });
      for (const text of range('missed', 40)) await a.send({ to: ben, text }); // the inbox keeps 20
      const second = await clientOf(ben, { store: storeOf(ben) });
      await until(async () => (await texts(second, { with: ann })).length === 41, 'what was missed');
      same(await texts(second, { with: ann }), ['one', ...range('missed', 40)], 'kept');
      await until(() => second.heard.includes('from a stranger'), 'whom it did not know');
    },

    async what_could_not_be_asked_for_after_a_gap_is_asked_for_again() {
      const [ann, ben] = await missed(40);
      const second = new Client({ url, token: await tokenOf(ben), store: storeOf(ben) });
      opened.push(second);
      const act = second.act.bind(second);
      let refused = 0;
      second.act = async (action, params) => {
        if (action === 'sync' && refused++ < 2) throw new PixiuError('unavailable', 'the stores are behind the log');
        return act(action, params);
      };
      second.reconnect();
      await until(async () => (await texts(second, { with: ann })).length === 41, 'what was missed');
      check(refused >= 2, 'it was refused');
    },

    async a_store_that_fails_while_it_is_used_stops_nothing() {
      const [ann, ben] = [unique('ann'), unique('ben')];
      const a = await clientOf(ann);
      const broken = new MemoryStore();
      const b = await clientOf(ben, { store: broken });
      for (const name of ['cursor', 'save', 'putUnsent', 'page', 'conversations']) {
        broken[name] = async () => {
          throw new Error('the connection to the store is lost');
        };
      }
      await b.send({ to: ann, text: 'out' });
      await until(() => a.heard.includes('out'), 'what it sends');
      const c = await clientOf(unique('carl'), { store: Object.assign(new MemoryStore(), { cursor: async () => { throw new Error('lost'); }, unsent: async () => { throw new Error('lost'); } }) });
      await a.send({ to: c.id, text: 'in' });
      await until(() => c.heard.includes('in'), 'what comes');
    },

    async what_was_missed_is_asked_for_until_it_is_answered() {
      const [ann, ben] = await missed(60);
      let unanswered = 0;
      class Mute extends WebSocket {
        send(frame) {
          if (JSON.parse(frame).action === 'sync') unanswered += 1;
          else super.send(frame);
        }
      }
      const second = await clientOf(ben, { store: storeOf(ben), WebSocket: Mute });
      await until(() => unanswered === 1 && second.heard.includes('missed 59'), 'the question');
      await sleep(100); // its cursor is behind everything now
      second.close();
      let refused = 0;
      class Busy extends WebSocket {
        send(frame) {
          const { id, action } = JSON.parse(frame);
          if (action !== 'sync' || refused++) super.send(frame);
          else this.onmessage({ data: JSON.stringify({ id, error: { code: 'busy', message: 'not now' } }) });
        }
      }
      const third = await clientOf(ben, { store: storeOf(ben), WebSocket: Busy });
      await until(async () => (await texts(third, { with: ann })).length === 61, 'what was missed');
      same(await texts(third, { with: ann }), ['one', ...range('missed', 60)], 'kept');
      await until(async () => (await third._store.owed()) === null, 'nothing more is owed');
      check(refused > 1, 'it was asked again');
    },

    async a_new_device_gets_the_newest_page_and_a_gap() {
      const [ann, ben] = [unique('ann'), unique('ben')];
      const a = await clientOf(ann);
      for (const text of range('old', 70)) await a.send({ to: ben, text });
      const fresh = await clientOf(ben, { claims: { platform: 'tablet' } });
      await fresh.catchUp({ with: ann }); // while its inbox is pushed
      await until(async () => (await fresh.local({ with: ann })).messages.length >= 20, 'the newest');
      let { gaps } = await fresh.local({ with: ann });
      same(gaps.length, 1, 'gaps');
      while (gaps.length) {
        await fresh.closeGap(gaps[0]);
        ({ gaps } = await fresh.local({ with: ann }));
      }
      same(await texts(fresh, { with: ann }), range('old', 70), 'kept');
    },

    async a_gap_of_a_group_survives_a_restart_and_is_closed_page_by_page() {
      const [ann, ben] = [unique('ann'), unique('ben')];
      const a = await clientOf(ann);
      const { group } = await a.createGroup({ members: [ben] });
      const first = await clientOf(ben, { store: storeOf(ben) });
      await a.gsend({ group, text: 'before' });
      await until(() => first.heard.includes('before'), 'the first');
      await sleep(100);
      first.close();
      for (const text of range('missed', 130)) await a.gsend({ group, text });
      const second = await clientOf(ben, { store: storeOf(ben) });
      const middle = async (client) => (await client.local({ group })).gaps.filter((gap) => gap.after !== '0');
      await until(async () => (await middle(second)).length === 1 && second.heard.includes('missed 129'), 'the gap');
      second.close();
      const third = await clientOf(ben, { store: storeOf(ben) });
      let left = await middle(third);
      same(left.length, 1, 'gaps after the restart');
      const gap = left[0];
      const [one, two] = await Promise.all([third.closeGap(gap), third.closeGap(gap)]);
      check(one === two, 'one page at a time');
      for (left = await middle(third); left.length; left = await middle(third)) await third.closeGap(left[0]);
      same(await texts(third, { group }), ['before', ...range('missed', 130)], 'kept');
    },

    async a_send_that_loses_its_answer_is_sent_again_and_said_once() {
      const [ann, ben] = [unique('ann'), unique('ben')];
      let breaks = 2;
      class Breaking extends WebSocket {
        send(data) {
          super.send(data);
          if (breaks > 0 && JSON.parse(data).action === 'send') {
            breaks -= 1;
            this.onmessage = null;
            setTimeout(() => this.close(), 50);
          }
        }
      }
      const b = await clientOf(ben);
      const a = await clientOf(ann, { WebSocket: Breaking });
      const { message_id: id } = await a.send({ to: ben, text: 'once' });
      same(breaks, 0, 'breaks that are left');
      await until(() => b.heard.length > 0, 'the message');
      await sleep(300);
      same([b.heard, a.heard], [['once'], ['once']], 'heard');
      same((await a.history({ with: ben })).messages.map((each) => each.message_id), [id], 'history');
      same(await a.unsent(), [], 'unsent');
    },

    async a_signal_reaches_connected_sessions_and_is_stored_nowhere() {
      const [ann, ben] = [unique('ann'), unique('ben')];
      const a = await clientOf(ann);
      const b = await clientOf(ben);
      const signals = [];
      b.on('signal', ({ message }) => signals.push([message.from, message.text]));
      await a.contact({ user: ben });
      same((await a.signal({ to: ben, text: 'live' })).delivered, null, 'sessions, before they are mutual contacts');
      await b.contact({ user: ann });
      await until(() => signals.length === 1, 'the first signal');
      signals.length = 0;
      same((await a.signal({ to: ben, text: 'live' })).delivered, 1, 'sessions');
      await until(() => signals.length === 1, 'the signal');
      same(signals, [[ann, 'live']], 'the signal');
      same((await b.history({ with: ann })).messages.filter((each) => each.kind === 'text'), [], 'history');
      b.close();
      await until(async () => (await a.signal({ to: ben, text: 'late' })).delivered === 0, 'the end of the session');
    },

    async what_was_not_sent_is_sent_by_the_next_client_on_the_store() {
      const [ann, ben] = [unique('ann'), unique('ben')];
      const b = await clientOf(ben);
      const store = storeOf(ann);
      const gone = new Client({ url: 'http://127.0.0.1:9', token: await tokenOf(ann), user: ann, store });
      const lost = gone.send({ to: ben, text: 'from before' }).catch((error) => error.code);
      await until(async () => (await gone.unsent()).length === 1, 'the outbox');
      gone.close();
      same(await lost, 'unavailable', 'the answer');
      const a = await clientOf(ann, { store: storeOf(ann) });
      await until(() => b.heard.includes('from before'), 'the message');
      await until(async () => (await a.unsent()).length === 0, 'an empty outbox');
    },

    async an_old_token_is_renewed_once_and_a_refused_one_ends_it() {
      const ann = unique('ann');
      let asked = 0;
      const good = connect({ url, token: 'old', user: ann, refreshToken: async () => ((asked += 1), tokenOf(ann)) });
      opened.push(good);
      await good.ready();
      same(asked, 1, 'times asked');
      const bad = connect({ url, token: 'old', user: ann, refreshToken: async () => 'also old' });
      const error = await bad.ready().catch((problem) => problem);
      same([error.code, bad.state], ['unavailable', { name: 'closed', reason: 'unauthenticated' }], 'the end');
      same(await bad.send({ to: ann, text: 'x' }).catch((problem) => problem.code), 'unavailable', 'a send after the end');
    },

    async the_same_device_again_replaces_the_first_which_stays_away() {
      const ann = unique('ann');
      const claims = { device: 'd1' };
      const first = await clientOf(ann, { claims });
      await clientOf(ann, { claims });
      await until(() => first.state.name === 'closed', 'the first to end');
      same(first.state.reason, 'new_session', 'why');
    },

    async receipts_that_came_while_away_are_found() {
      const [ann, ben] = [unique('ann'), unique('ben')];
      const a = await clientOf(ann, { store: storeOf(ann) });
      const { message_id: id } = await a.send({ to: ben, text: 'seen?' });
      await until(() => a.heard.length === 1, 'it to be stored');
      a.close();
      const b = await clientOf(ben);
      await until(() => b.heard.length === 1, 'the message');
      await b.receipt({ message_ids: [id], kind: 'both' });
      const again = await clientOf(ann, { store: storeOf(ann) });
      same((await again.message(id)).read_at, undefined, 'the receipt before');
      await again.refresh({ with: ben });
      check((await again.message(id)).read_at > 0, 'the receipt after');
      same((await again.local({ with: ben })).gaps, [], 'gaps, as the whole of it is here');
    },

    async rooms_are_entered_again_after_a_break() {
      const room = unique('room');
      const a = await clientOf(unique('ann'));
      const b = await clientOf(unique('ben'));
      await a.enter({ room });
      await b.enter({ room });
      a.reconnect();
      await a.ready();
      await until(async () => (await b.say({ room, text: 'again' })).members === 2, 'both to be there');
      await until(() => a.heard.includes('again'), 'the talk');
    },

    async refusals_come_with_their_code_and_bounds_are_kept() {
      const a = await clientOf(unique('ann'));
      const refused = await a.send({ to: unique('x') }).catch((error) => error);
      check(refused instanceof PixiuError && refused.code === 'bad_request', `bad_request, not ${refused.code}`);
      same(await a.unsent(), [], 'unsent');
      const late = new Client({ url: 'http://127.0.0.1:9', token: 'x', user: 'x' });
      const waits = Array.from({ length: 1000 }, () => late.history({ with: 'y' }).catch((error) => error.code));
      await sleep(50);
      same(await late.history({ with: 'y' }).catch((error) => error.code), 'busy', 'one more');
      late.close();
      same([...new Set(await Promise.all(waits))], ['unavailable'], 'the others');
      check(compareIds('9', '10') < 0 && compareIds('20', '10') > 0 && compareIds('7', '7') === 0, 'order of ids');
    },

    async where_no_connection_can_be_nothing_waits_for_one() {
      const refusal = (work) => Promise.resolve().then(work).then(() => 'none', (error) => error.message);
      const said = await refusal(() => connect({ url, token: 'x', user: 'x', WebSocket: null }));
      check(said.includes('Node 22') && said.includes('`WebSocket`'), `what to do: ${said}`);
      const broken = class { constructor() { throw new Error('not today'); } };
      const late = connect({ url, token: 'x', user: 'x', WebSocket: broken });
      const begun = Date.now();
      const answers = await Promise.all([refusal(() => late.send({ to: 'y', text: 'z' })), refusal(() => late.ready())]);
      answers.push(await refusal(() => late.ready()), await refusal(() => late.contacts()));
      same([...new Set(answers)], ['the connection is closed: not today'], 'refusals');
      check(Date.now() - begun < 15_000, 'at once, not when the time of a send is over');
    },

    async a_store_that_fails_costs_no_message() {
      const [ann, ben] = [unique('ann'), unique('ben')];
      const full = Object.assign(new MemoryStore(), { save: async () => { throw new Error('full'); } });
      const b = await clientOf(ben, { store: full });
      const a = await clientOf(ann);
      for (const text of range('kept', 3)) await a.send({ to: ben, text });
      await until(() => b.heard.length === 3, 'the messages');
      same(await texts(b, { with: ann }), range('kept', 3), 'kept in memory');
      await b.send({ to: ann, text: 'fine' });
      await until(() => a.heard.includes('fine'), 'the answer');
    },

    async a_memory_store_forgets_the_oldest_and_remembers_that() {
      const store = new MemoryStore();
      const rows = Array.from({ length: 5_010 }, (_, n) => ({
        place: 'u:x', key: String(n + 1).padStart(20, '0'), message_id: String(n + 1), message: { message_id: String(n + 1), text: String(n) },
      }));
      await store.save(rows);
      same((await store.page('u:x', { limit: 10_000 })).length, 5_000, 'kept');
      same(await store.gaps('u:x'), [{ with: 'x', after: '0', before: '11' }], 'gaps');
    },
  };

  return (async () => {
    const wrong = {};
    for (const [name, run] of Object.entries(cases)) {
      try {
        await run();
      } catch (error) {
        wrong[name] = String(error.stack ?? error);
      }
      for (const client of opened.splice(0)) client.close();
    }
    return { ran: Object.keys(cases).length, wrong };
  })();
});
