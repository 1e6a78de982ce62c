/** Who is connected, and closing sessions. */
import { number } from '/format.js';
import { addWords, why } from '/i18n.js';
import { go } from '/router.js';
import { Avatar, Badge, Button, Card, Dialog, Empty, Field, Loaded, PageFrame, Table, html, toast, useEffect, useLoad, useState } from '/ui.js';

addWords({
  en: {
    'sessions.text': 'Devices that are connected to this server now, newest first.', 'sessions.search': 'User', 'sessions.search.hint': 'A user’s public id; all without one.', 'sessions.find': 'Find', 'sessions.all': 'Show all', 'sessions.none': 'Nobody is connected',
    'sessions.none.how': 'Devices appear here as soon as they connect.', 'sessions.none.user': '{user} has no session here', 'sessions.none.user.how': 'What comes for them waits until they return.', 'sessions.unknown': 'There is no user {user}', 'sessions.unknown.how': 'Look at the spelling: ids are case-sensitive.', 'sessions.user': 'User', 'sessions.platform': 'Platform', 'sessions.device': 'Device', 'sessions.gateway': 'Gateway', 'sessions.id': 'Session',
    'sessions.you': 'you', 'sessions.kick': 'Kick', 'sessions.kick.all': 'Kick all of {user}', 'sessions.sure': 'Close this session of {user}?', 'sessions.sure.all': 'Close all sessions of {user}?', 'sessions.sure.text': 'The device is logged out, and may log in again. No message is lost by it.',
    'sessions.reason': 'Reason', 'sessions.reason.hint': 'The device is told.', 'sessions.done': '{n} session closed|{n} sessions closed', 'sessions.more': 'Show more',
  },
  zh: {
    'sessions.text': '此刻连接到本服务器的设备，最新的在前。', 'sessions.search': '用户', 'sessions.search.hint': '用户的公开标识；留空则显示全部。', 'sessions.find': '查找', 'sessions.all': '显示全部', 'sessions.none': '没有人在线',
    'sessions.none.how': '设备一连接就会出现在这里。', 'sessions.none.user': '{user} 在此没有会话', 'sessions.none.user.how': '发给此人的消息会等到其回来。', 'sessions.unknown': '没有用户 {user}', 'sessions.unknown.how': '请检查拼写：标识区分大小写。', 'sessions.user': '用户', 'sessions.platform': '平台', 'sessions.device': '设备', 'sessions.gateway': '网关', 'sessions.id': '会话',
    'sessions.you': '你', 'sessions.kick': '踢出', 'sessions.kick.all': '踢出 {user} 的全部会话', 'sessions.sure': '关闭 {user} 的这个会话？', 'sessions.sure.all': '关闭 {user} 的全部会话？', 'sessions.sure.text': '该设备会退出登录，之后可以重新登录。不会因此丢失消息。',
    'sessions.reason': '原因', 'sessions.reason.hint': '会告知该设备。', 'sessions.done': '已关闭 {n} 个会话', 'sessions.more': '显示更多',
  },
});

const PAGE = 100;

function Kick({ client, target, t, onClose, onDone }) {
  const [reason, setReason] = useState('kicked');
  const [busy, setBusy] = useState(false);
  const kick = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const body = { user: target.user, reason: reason.trim() || 'kicked', ...(target.session_id ? { session_id: target.session_id } : {}) };
      const { kicked } = await client.http('/v1/admin/kick', { method: 'POST', body });
      toast(t('sessions.done', { n: number(kicked) }));
    } catch (error) {
      toast(why(error), 'bad');
    }
    onDone();
  };
  return html`<${Dialog} title=${t(target.session_id ? 'sessions.sure' : 'sessions.sure.all', { user: target.user })} onClose=${onClose}>
    <form class="stack" onSubmit=${kick}><p>${t('sessions.sure.text')}</p>
      <${Field} label=${t('sessions.reason')} hint=${t('sessions.reason.hint')} maxlength="64" value=${reason} onInput=${(event) => setReason(event.target.value)} />
      <div class="actions"><${Button} onClick=${onClose}>${t('cancel')}<//><${Button} kind="danger" type="submit" busy=${busy}>${t('sessions.kick')}<//></div>
    </form>
  <//>`;
}

export default function Page({ client, t, parts }) {
  const user = parts[0] ?? '';
  const [typed, setTyped] = useState(user);
  const [limit, setLimit] = useState(PAGE);
  const [target, setTarget] = useState(null);
  useEffect(() => setTyped(user), [user]);
  const load = useLoad(() => client.http('/v1/admin/sessions', { query: { limit, user: user || undefined } })
    .catch((error) => {
      if (error.code === 'not_found') return { sessions: [], has_more: false, unknown: true };
      throw error;
    }).then((page) => ({ ...page, user })), [user, limit], 3000);
  const find = (event) => {
    event.preventDefault();
    go('sessions', typed.trim() ? [typed.trim()] : []);
  };
  const columns = [
    { key: 'user', title: t('sessions.user'), show: (each) => html`<span class="row"><${Avatar} id=${each.user} size="s" /><b>${each.user}</b>${each.user === client.id && html`<${Badge} tone="accent">${t('sessions.you')}<//>`}</span>` },
    { key: 'platform', title: t('sessions.platform'), show: (each) => html`<${Badge}>${each.platform}<//>` },
    { key: 'device', title: t('sessions.device'), show: (each) => (each.device ? html`<span class="mono">${each.device}</span>` : '–') },
    { key: 'gateway', title: t('sessions.gateway'), show: (each) => html`<span class="small muted">${each.gateway}</span>` },
    { key: 'session_id', title: t('sessions.id'), show: (each) => html`<span class="mono small muted">${each.session_id}</span>` },
    { key: 'kick', title: '', right: true, show: (each) => html`<${Button} small kind="danger" aria-label=${`${t('sessions.kick')} ${each.user} ${each.platform}`} onClick=${() => setTarget(each)}>${t('sessions.kick')}<//>` },
  ];
  const emptyOf = (page) => {
    const key = page.unknown ? 'sessions.unknown' : page.user ? 'sessions.none.user' : 'sessions.none';
    return html`<${Empty} icon="sessions" title=${t(key, { user: page.user })} text=${t(`${key}.how`)} />`;
  };
  return html`<${PageFrame} title=${t('nav.sessions')} text=${t('sessions.text')}>
    <form class="searching" role="search" onSubmit=${find}>
      <${Field} label=${t('sessions.search')} hint=${t('sessions.search.hint')} type="search" maxlength="64" spellcheck=${false} autocapitalize="none" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      <${Button} kind="primary" icon="search" type="submit">${t('sessions.find')}<//>
      ${user && html`<${Button} onClick=${() => go('sessions')}>${t('sessions.all')}<//>`}
    </form>
    <${Loaded} of=${load}>${(page) => html`<${Card} flush class="sessions-card" title=${page.user || undefined}
        actions=${page.user && page.sessions.length > 1 && html`<${Button} small kind="danger" onClick=${() => setTarget({ user: page.user })}>${t('sessions.kick.all', { user: page.user })}<//>`}>
      <${Table} label=${t('nav.sessions')} columns=${columns} rows=${page.sessions} keyOf=${(each) => each.session_id} empty=${emptyOf(page)} />
    <//>${page.has_more && limit < 1000 && html`<div class="row centre"><${Button} onClick=${() => setLimit(Math.min(limit * 3, 1000))}>${t('sessions.more')}<//></div>`}`}<//>
    ${target && html`<${Kick} client=${client} target=${target} t=${t} onClose=${() => setTarget(null)} onDone=${() => { setTarget(null); load.reload(); }} />`}
  <//>`;
}
