/** New conversations, details of one, and messages for later. */
import { t, why } from '/i18n.js';
import { day, moment } from '/format.js';
import { Avatar, Badge, Button, Confirm, Dialog, ErrorBox, Field, Tabs, html, toast, useLoad, useState } from '/ui.js';
import { Face } from '/chat/list.js';

const nameIn = (chat, user) => chat.rows.get(`u:${user}`)?.name ?? user;

/** Runs a deed; says what went wrong; tells whether it is under way. */
function useDeed() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const run = async (deed) => {
    if (busy) return;
    setBusy(true);
    setError(null);
    try {
      await deed();
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return { busy, error, run };
}

const Problem = ({ error }) => error && html`<div class="notice" role="alert">${why(error)}</div>`;
const namesIn = (text) => [...new Set(text.split(/[,，、;\n]/).map((each) => each.trim()).filter(Boolean))];

export function NewDialog({ chat, onOpen, onClose }) {
  const [kind, setKind] = useState('person');
  return html`<${Dialog} title=${t('chat.new')} onClose=${onClose}>
    <${Tabs} label=${t('new.kind')} value=${kind} onChange=${setKind} options=${['person', 'group', 'room'].map((each) => [each, t(`new.${each}`)])} />
    ${kind === 'person' && html`<${NewPerson} chat=${chat} onOpen=${onOpen} />`}
    ${kind === 'group' && html`<${NewGroup} chat=${chat} onOpen=${onOpen} onClose=${onClose} />`}
    ${kind === 'room' && html`<${NewRoom} chat=${chat} onOpen=${onOpen} />`}
  <//>`;
}

function OneField({ label, hint, go, deed, name }) {
  const [text, setText] = useState('');
  const { busy, error, run } = useDeed();
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) run(() => deed(text.trim()));
  };
  return html`<form class="stack" onSubmit=${submit}>
    <${Field} label=${label} hint=${hint} name=${name} value=${text} onInput=${(event) => setText(event.target.value)} maxlength="64" autocomplete="off" autofocus required />
    <${Problem} error=${error} />
    <div class="actions"><${Button} kind="primary" type="submit" busy=${busy}>${go}<//></div>
  </form>`;
}

const NewPerson = ({ chat, onOpen }) =>
  html`<${OneField} name="person" label=${t('new.person.name')} hint=${t('new.person.hint')} go=${t('new.person.go')} deed=${async (name) => onOpen(await chat.addPerson(name))} />`;

const NewRoom = ({ chat, onOpen }) =>
  html`<${OneField} name="room" label=${t('new.room.name')} hint=${t('new.room.hint')} go=${t('new.room.go')} deed=${async (name) => onOpen(await chat.enterRoom(name))} />`;

function NewGroup({ chat, onOpen, onClose }) {
  const [name, setName] = useState('');
  const [members, setMembers] = useState('');
  const { busy, error, run } = useDeed();
  const people = chat.list().filter((row) => row.place.with !== undefined && row.isContact);
  const picked = new Set(namesIn(members));
  const pick = (id) => {
    if (picked.has(id)) picked.delete(id);
    else picked.add(id);
    setMembers([...picked].join(', '));
  };
  const create = (event) => {
    event.preventDefault();
    if (name.trim()) run(async () => onOpen(await chat.createGroup(name.trim(), namesIn(members).filter((each) => each !== chat.me))));
  };
  const join = async (group) => {
    const key = await chat.joinGroup(group);
    if (key) onOpen(key);
    else {
      toast(t('new.group.asked'));
      onClose();
    }
  };
  return html`<form class="stack" onSubmit=${create}>
      <${Field} label=${t('new.group.name')} name="group" value=${name} onInput=${(event) => setName(event.target.value)} maxlength="80" autocomplete="off" autofocus required />
      <${Field} label=${t('new.group.members')} hint=${t('new.group.members.hint')} name="members" value=${members} onInput=${(event) => setMembers(event.target.value)} autocomplete="off" />
      ${people.length > 0 && html`<div class="picks">${people.slice(0, 12).map((row) => html`<button key=${row.key} type="button" class="pick" aria-pressed=${String(picked.has(row.id))} onClick=${() => pick(row.id)}><${Avatar} id=${row.id} name=${row.name} size="s" />${row.name}</button>`)}</div>`}
      <${Problem} error=${error} />
      <div class="actions"><${Button} kind="primary" type="submit" busy=${busy}>${t('new.group.go')}<//></div>
    </form>
    <details class="more"><summary>${t('new.group.join')}</summary><${OneField} name="join" label=${t('new.group.id')} go=${t('new.group.join.go')} deed=${join} /></details>`;
}

export function DetailsDialog({ chat, thread, onClose, onGone }) {
  const { row } = thread;
  const body = row.place.group !== undefined ? GroupDetails : row.place.room !== undefined ? RoomDetails : PersonDetails;
  return html`<${Dialog} title=${t('chat.details')} onClose=${onClose}>
    <div class="portrait"><${Face} row=${row} size="l" /><h2>${row.name}</h2>${row.name !== row.id && row.place.group === undefined && html`<span class="muted small">${row.id}</span>`}</div>
    <${body} chat=${chat} thread=${thread} row=${row} onClose=${onClose} onGone=${onGone} />
  <//>`;
}

function RoomDetails({ chat, row, onGone }) {
  const { busy, error, run } = useDeed();
  return html`<p class="muted small">${t('chat.room.how')}</p><${Problem} error=${error} />
    <div class="actions"><${Button} kind="danger" busy=${busy} onClick=${() => run(async () => { onGone(); await chat.leaveRoom(row.id); })}>${t('room.leave')}<//></div>`;
}

function PersonDetails({ chat, row, onClose }) {
  const { busy, error, run } = useDeed();
  const { client } = chat;
  const change = (action) => run(async () => {
    await client[action]({ user: row.id });
    await client.contacts();
    if (action === 'block') toast(t('person.blocked', { who: row.name }));
    onClose();
  });
  return html`${row.isContact && row.at > 0 && html`<p class="muted small center">${t('person.since', { day: day(row.at) })}</p>`}
    <${Problem} error=${error} />
    ${row.id !== chat.me && html`<div class="actions">
      <${Button} kind="danger" busy=${busy} onClick=${() => change('block')}>${t('person.block')}<//>
      <${Button} busy=${busy} onClick=${() => change(row.isContact ? 'unlink' : 'contact')}>${t(row.isContact ? 'person.unlink' : 'person.add')}<//>
    </div>`}`;
}

function GroupDetails({ chat, thread, row, onGone }) {
  const { busy, error, run } = useDeed();
  const [who, setWho] = useState('');
  const [asks, setAsks] = useState(null); // 'leave', or { op, user } of an operation to confirm
  const { group } = thread;
  const manage = (user, op) => run(async () => {
    await chat.client.manage({ group: row.id, user, op });
    await chat.loadGroup();
  });
  const history = (next) => run(async () => {
    await chat.client.manage({ group: row.id, op: 'history', history: next });
    await chat.loadGroup();
  });
  const invite = (event) => {
    event.preventDefault();
    const [first, ...others] = namesIn(who);
    if (!first) return;
    run(async () => {
      for (const each of [first, ...others]) await chat.client.manage({ group: row.id, user: each, op: 'invite' });
      setWho('');
      await chat.loadGroup();
    });
  };
  const confirmed = async ({ user, op }) => {
    await chat.client.manage({ group: row.id, user, op });
    await chat.loadGroup();
  };
  if (!group) return thread.error ? html`<${ErrorBox} error=${thread.error} />` : html`<span class="spinner" />`;
  const mine = group.members?.find((each) => each.user === chat.me)?.role ?? 'member';
  const rank = { owner: 2, admin: 1, member: 0 };
  return html`
    <${Field} label=${t('group.id')} value=${row.id} readonly onFocus=${(event) => event.target.select()} class="input mono" />
    <form class="row" onSubmit=${invite}><input class="input" name="invite" aria-label=${t('group.invite.who')} placeholder=${t('group.invite.who')} value=${who} onInput=${(event) => setWho(event.target.value)} /><${Button} kind="primary" type="submit" busy=${busy}>${t('group.invite')}<//></form>
    <${Problem} error=${error} />
    ${group.requests?.length > 0 && html`<div><h3>${t('group.requests')}</h3><ul class="people">${group.requests.map((each) => html`<li key=${each.user}><${Avatar} id=${each.user} size="s" /><span class="grow cut">${each.user}</span>
      <${Button} small kind="primary" onClick=${() => manage(each.user, 'approve')}>${t('group.approve')}<//><${Button} small onClick=${() => manage(each.user, 'refuse')}>${t('group.refuse')}<//></li>`)}</ul></div>`}
    <label class="field"><span>${t('group.history')}</span><select class="input" name="history" disabled=${mine !== 'owner' || busy} value=${group.history ?? 'all'} onChange=${(event) => history(event.target.value)}>
      ${['all', 'since_join'].map((each) => html`<option key=${each} value=${each}>${t(`group.history.${each}`)}</option>`)}</select></label>
    <div><h3>${t('group.members')} <span class="muted number">${group.member_count}</span></h3><ul class="people">${(group.members ?? []).map((each) => {
      const isBelow = rank[mine] > rank[each.role];
      return html`<li key=${each.user}><${Avatar} id=${each.user} name=${nameIn(chat, each.user)} size="s" /><span class="grow cut">${nameIn(chat, each.user)}${each.user === chat.me && html` <span class="muted">(${t('group.you')})</span>`}</span>
        ${each.role !== 'member' && html`<${Badge} tone=${each.role === 'owner' ? 'gold' : 'accent'}>${t(`group.${each.role}`)}<//>`}${each.is_muted && html`<${Badge} tone="bad">${t('group.muted')}<//>`}
        ${mine === 'owner' && each.user !== chat.me && html`<${Button} kind="quiet" small icon="audit" label=${t(each.role === 'admin' ? 'group.demote' : 'group.promote', { who: each.user })} onClick=${() => manage(each.user, each.role === 'admin' ? 'member' : 'admin')} />`}
        ${mine === 'owner' && each.user !== chat.me && html`<${Button} kind="quiet" small icon="crown" label=${t('group.transfer', { who: each.user })} onClick=${() => setAsks({ op: 'transfer', user: each.user })} />`}
        ${isBelow && html`<${Button} kind="quiet" small icon=${each.is_muted ? 'chat' : 'pause'} label=${t(each.is_muted ? 'group.unmute' : 'group.mute', { who: each.user })} onClick=${() => manage(each.user, each.is_muted ? 'unmute' : 'mute')} />
          <${Button} kind="quiet" small icon="close" label=${t('group.remove', { who: each.user })} onClick=${() => setAsks({ op: 'remove', user: each.user })} />`}</li>`;
    })}</ul></div>
    <div class="actions"><${Button} kind="danger" icon="logout" busy=${busy} onClick=${() => setAsks('leave')}>${t('group.quit')}<//></div>
    ${asks === 'leave' && html`<${LeaveGroup} chat=${chat} row=${row} group=${group} isOwner=${mine === 'owner'} onGone=${onGone} onClose=${() => setAsks(null)} />`}
    ${asks?.op && html`<${Confirm} title=${t(`group.${asks.op}.sure`, { who: nameIn(chat, asks.user) })} text=${t(`group.${asks.op}.text`)} go=${t(`group.${asks.op}.go`)} onGo=${() => confirmed(asks)} onClose=${() => setAsks(null)} />`}`;
}

/** The owner of a group with other members chooses the next owner; the server refuses to leave a group without one. */
function LeaveGroup({ chat, row, group, isOwner, onGone, onClose }) {
  const others = isOwner ? (group.members ?? []).filter((each) => each.user !== chat.me) : [];
  const [heir, setHeir] = useState((others.find((each) => each.role === 'admin') ?? others[0])?.user ?? '');
  const leave = async () => {
    await chat.quitGroup(row.id, heir);
    onGone();
  };
  return html`<${Confirm} title=${t('group.quit.sure')} text=${t(heir ? 'group.quit.owner' : 'group.quit.text')} go=${t(heir ? 'group.quit.transfer' : 'group.quit.go')} onGo=${leave} onClose=${onClose}>
    ${heir && html`<${Field} as="select" name="heir" label=${t('group.heir')} value=${heir} onChange=${(event) => setHeir(event.target.value)}>
      ${others.map((each) => html`<option key=${each.user} value=${each.user}>${nameIn(chat, each.user)}</option>`)}<//>`}
  <//>`;
}

const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
const minutes = (n) => () => Date.now() + n * 60_000;
const tomorrow = () => {
  const at = new Date();
  at.setDate(at.getDate() + 1);
  return at.setHours(9, 0, 0, 0);
};

export function LaterDialog({ chat, thread, text: given, onScheduled, onClose }) {
  const { row } = thread;
  const [text, setText] = useState(given);
  const [at, setAt] = useState(() => local(Date.now() + 10 * 60_000));
  const { busy, error, run } = useDeed();
  const waiting = useLoad(() => chat.client.scheduled(), []);
  const submit = (event) => {
    event.preventDefault();
    run(async () => {
      const time = new Date(at).getTime();
      await chat.client.schedule({ at: time, text: text.trim(), ...(row.place.group !== undefined ? { group: row.id } : { to: row.id }) });
      toast(t('later.done', { when: moment(time) }));
      setText('');
      onScheduled();
      waiting.reload();
    });
  };
  const drop = (id) => run(async () => {
    await chat.client.unschedule({ schedule_id: id });
    waiting.reload();
  });
  const rows = waiting.data?.scheduled ?? [];
  return html`<${Dialog} title=${t('later.title')} onClose=${onClose}>
    <form class="stack" onSubmit=${submit}>
      <${Field} as="textarea" rows="3" name="later" label=${t('later.text')} value=${text} onInput=${(event) => setText(event.target.value)} required autofocus />
      <${Field} type="datetime-local" name="at" label=${t('later.at')} value=${at} min=${local(Date.now())} onInput=${(event) => setAt(event.target.value)} required />
      <div class="picks">${[['later.10m', minutes(10)], ['later.1h', minutes(60)], ['later.9', tomorrow]].map(([key, make]) => html`<button key=${key} type="button" class="pick" onClick=${() => setAt(local(make()))}>${t(key)}</button>`)}</div>
      <${Problem} error=${error} />
      <div class="actions"><${Button} kind="primary" icon="clock" type="submit" busy=${busy} disabled=${!text.trim()}>${t('later.go')}<//></div>
    </form>
    <div><h3>${t('later.list')}</h3>
      ${waiting.data && !rows.length && html`<p class="muted small">${t('later.none')}</p>`}
      <ul class="people waiting">${rows.map((each) => html`<li key=${each.schedule_id}><span class="grow"><span class="cut">${each.text}</span><small class="muted">${moment(each.at)} · ${t('later.to', { name: chat.rows.get(each.group !== undefined ? `g:${each.group}` : `u:${each.to}`)?.name ?? each.group ?? each.to })}</small></span>
        <${Button} kind="quiet" small icon="close" label=${t('later.cancel')} onClick=${() => drop(each.schedule_id)} /></li>`)}</ul></div>
  <//>`;
}
