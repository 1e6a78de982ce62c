/** What was given up on: why, and giving it back. */
import { moment, number } from '/format.js';
import { addWords, why } from '/i18n.js';
import { Badge, Button, Card, Dialog, Empty, Loaded, PageFrame, Table, html, toast, useLoad, useState } from '/ui.js';

addWords({
  en: {
    'dead-letters.text': 'Tasks that failed for good. Nothing is thrown away: look why, and give them back.', 'dead-letters.none': 'No dead letters', 'dead-letters.none.how': 'Everything that had to be done was done.',
    'dead-letters.when': 'When', 'dead-letters.what': 'Task', 'dead-letters.user': 'User', 'dead-letters.reason': 'Reason', 'dead-letters.attempts': 'Tries', 'dead-letters.inspect': 'Inspect', 'dead-letters.replay': 'Give back',
    'dead-letters.replay.all': 'Give all back', 'dead-letters.one': 'Dead letter {id}', 'dead-letters.sure': 'Give it back?', 'dead-letters.sure.text': 'It is tried again at once. If it fails again, it comes back as a new dead letter.',
    'dead-letters.sure.all': 'Give {n} dead letter back?|Give {n} dead letters back?', 'dead-letters.done': '{n} given back', 'dead-letters.partly': '{n} given back; then: {reason}', 'dead-letters.more': 'There are more than are shown here.',
    'dead-letters.id': 'Event', 'dead-letters.message_id': 'Message', 'dead-letters.platforms': 'Platforms', 'dead-letters.code': 'Code', 'dead-letters.at': 'When', 'dead-letters.attempt': 'Tries', 'dead-letters.sealed': 'What people say is not shown to admins.',
  },
  zh: {
    'dead-letters.text': '最终失败的任务。什么都不会丢弃：查明原因，再交还重试。', 'dead-letters.none': '没有死信', 'dead-letters.none.how': '该做的都做完了。',
    'dead-letters.when': '时间', 'dead-letters.what': '任务', 'dead-letters.user': '用户', 'dead-letters.reason': '原因', 'dead-letters.attempts': '尝试', 'dead-letters.inspect': '查看', 'dead-letters.replay': '交还',
    'dead-letters.replay.all': '全部交还', 'dead-letters.one': '死信 {id}', 'dead-letters.sure': '交还它？', 'dead-letters.sure.text': '它会立即重试。若再次失败，会成为一封新的死信。',
    'dead-letters.sure.all': '交还 {n} 封死信？', 'dead-letters.done': '已交还 {n} 封', 'dead-letters.partly': '已交还 {n} 封，随后出错：{reason}', 'dead-letters.more': '还有更多未显示。',
    'dead-letters.id': '事件', 'dead-letters.message_id': '消息', 'dead-letters.platforms': '平台', 'dead-letters.code': '代码', 'dead-letters.at': '时间', 'dead-letters.attempt': '尝试', 'dead-letters.sealed': '用户所说的内容不向管理员显示。',
  },
});

const LIMIT = 200;
const FIELDS = ['id', 'at', 'what', 'user', 'reason', 'code', 'attempt', 'message_id', 'platforms'];

function Details({ letter, t, onClose, onReplay }) {
  const shown = { ...letter, at: moment(letter.at), platforms: letter.platforms?.join(', ') };
  return html`<${Dialog} title=${t('dead-letters.one', { id: letter.id })} onClose=${onClose}>
    <dl class="facts tall">${FIELDS.filter((name) => shown[name] !== undefined && shown[name] !== '').map((name) => html`<dt key=${name}>${t(`dead-letters.${name}`)}</dt><dd class=${name === 'reason' ? '' : 'mono'}>${shown[name]}</dd>`)}</dl>
    <p class="small muted">${t('dead-letters.sealed')}</p>
    <div class="actions"><${Button} onClick=${onClose}>${t('close')}<//><${Button} kind="primary" onClick=${onReplay}>${t('dead-letters.replay')}<//></div>
  <//>`;
}

function Confirm({ letters, t, onClose, onDone, client }) {
  const [done, setDone] = useState(null);
  const replay = async () => {
    let count = 0;
    setDone(0);
    try {
      for (const letter of letters) {
        await client.http(`/v1/admin/dead-letters/${letter.id}/replay`, { method: 'POST', body: {} });
        count += 1;
        setDone(count);
      }
      toast(t('dead-letters.done', { n: number(count) }));
    } catch (error) {
      toast(t('dead-letters.partly', { n: number(count), reason: why(error) }), 'bad');
    }
    onDone();
  };
  const title = letters.length === 1 ? t('dead-letters.sure') : t('dead-letters.sure.all', { n: number(letters.length) });
  return html`<${Dialog} title=${title} onClose=${onClose}><p>${t('dead-letters.sure.text')}</p>
    ${done !== null && letters.length > 1 && html`<progress max=${letters.length} value=${done} aria-label=${title} />`}
    <div class="actions"><${Button} onClick=${onClose}>${t('cancel')}<//><${Button} kind="primary" busy=${done !== null} autofocus onClick=${replay}>${t('dead-letters.replay')}<//></div>
  <//>`;
}

export default function Page({ client, t }) {
  const load = useLoad(() => client.http('/v1/admin/dead-letters', { query: { limit: LIMIT } }), [], 5000);
  const [inspected, setInspected] = useState(null);
  const [asked, setAsked] = useState(null);
  const letters = load.data?.dead_letters ?? [];
  const columns = [
    { key: 'at', title: t('dead-letters.when'), show: (letter) => html`<span class="nowrap small">${moment(letter.at)}</span>` },
    { key: 'what', title: t('dead-letters.what'), show: (letter) => html`<${Badge} tone="gold">${letter.what}<//>` },
    { key: 'user', title: t('dead-letters.user'), show: (letter) => (letter.user ? html`<b>${letter.user}</b>` : '–') },
    { key: 'reason', title: t('dead-letters.reason'), show: (letter) => html`<span class="reason">${letter.reason}</span>` },
    { key: 'attempt', title: t('dead-letters.attempts'), right: true },
    { key: 'actions', title: '', right: true, show: (letter) => html`<span class="row end nowrap"><${Button} small kind="quiet" onClick=${(event) => { event.stopPropagation(); setInspected(letter); }}>${t('dead-letters.inspect')}<//><${Button} small onClick=${(event) => { event.stopPropagation(); setAsked([letter]); }}>${t('dead-letters.replay')}<//></span>` },
  ];
  const empty = html`<${Empty} icon="check" title=${t('dead-letters.none')} text=${t('dead-letters.none.how')} />`;
  const close = () => {
    setAsked(null);
    setInspected(null);
  };
  return html`<${PageFrame} title=${t('nav.dead-letters')} text=${t('dead-letters.text')}
    actions=${letters.length > 1 && html`<${Button} onClick=${() => setAsked(letters)}>${t('dead-letters.replay.all')}<//>`}>
    <${Loaded} of=${load}>${({ dead_letters: rows, has_more: more }) => html`<${Card} flush class="letters-card">
      <${Table} label=${t('nav.dead-letters')} columns=${columns} rows=${rows} keyOf=${(letter) => letter.id} onPick=${setInspected} empty=${empty} />
    <//>${more && html`<p class="small muted">${t('dead-letters.more')}</p>`}`}<//>
    ${asked ? html`<${Confirm} client=${client} letters=${asked} t=${t} onClose=${close} onDone=${() => { close(); load.reload(); }} />`
      : inspected && html`<${Details} letter=${inspected} t=${t} onClose=${close} onReplay=${() => setAsked([inspected])} />`}
  <//>`;
}
