/** The proof: who should have got what, recomputed from the log, against what the stores hold. */
import { moment, number } from '/format.js';
import { addWords } from '/i18n.js';
import { Button, Card, Empty, ErrorBox, PageFrame, Table, html, useState } from '/ui.js';
import { Verdict } from '/verdict.js';

addWords({
  en: {
    'audit.text': 'Replays the whole log, recomputes what every inbox and history should hold, and compares that with the stores.', 'audit.run': 'Run the audit', 'audit.again': 'Run the audit again', 'audit.running': 'Reading the log …', 'audit.first': 'No audit has run on this page', 'audit.first.how': 'An audit counts every accepted message and every inbox and history that it was meant for. It runs while the server serves.',
    'audit.good': 'Balanced', 'audit.stale': 'This audit is out of date', 'audit.good.text': 'No message is lost and none is stored twice: {n} message.|No message is lost and none is stored twice: {n} messages.', 'audit.bad': 'Not balanced', 'audit.bad.text': '{lost} lost, {twice} stored twice.', 'audit.none': 'There is nothing to balance yet: no message was accepted.',
    'audit.intended': 'Intended', 'audit.acked': 'Acked', 'audit.waiting': 'Waiting', 'audit.expired': 'Expired', 'audit.dead': 'Dead', 'audit.accepted': 'Messages accepted', 'audit.resent': 'Sent again', 'audit.histories': 'Rows of histories', 'audit.stored': 'Stored only (large groups)', 'audit.undecodable': 'Records that cannot be decoded', 'audit.cut': 'Log through event', 'audit.at': 'Finished',
    'audit.intended.text': 'inboxes that should get it', 'audit.acked.text': 'delivered and acknowledged', 'audit.waiting.text': 'stored for offline devices', 'audit.expired.text': 'waited too long', 'audit.dead.text': 'not to be stored',
    'audit.equals': 'equals', 'audit.differs': 'differs from', 'audit.plus': 'plus', 'audit.lost': 'Lost', 'audit.twice': 'Stored twice', 'audit.message': 'Message', 'audit.where': 'Where', 'audit.why': 'Why', 'audit.place': 'user {user}, {platform}', 'audit.place.user': 'history of user {user}', 'audit.place.group': 'history of group {group}', 'audit.counts': 'Counts', 'audit.from': 'Accepted from', 'audit.to': 'Accepted before', 'audit.window': 'Limit to a time range',
  },
  zh: {
    'audit.text': '重放整个日志，重新计算谁应收到什么，并与存储中的内容核对。', 'audit.run': '开始审计', 'audit.again': '再次审计', 'audit.running': '正在读取日志……', 'audit.first': '本页尚未运行审计', 'audit.first.how': '审计清点每一条已接收的消息，以及它应到达的每一个收件箱与历史记录。可与业务同时运行。',
    'audit.good': '账目平衡', 'audit.stale': '审计结果已过时', 'audit.good.text': '没有丢失，没有重复：共 {n} 条消息。', 'audit.bad': '账目不平', 'audit.bad.text': '丢失 {lost}，重复 {twice}。', 'audit.none': '还没有可对的账：尚未接收任何消息。',
    'audit.intended': '应达', 'audit.acked': '已确认', 'audit.waiting': '等待中', 'audit.expired': '已过期', 'audit.dead': '已作废', 'audit.accepted': '已接收消息', 'audit.resent': '重发', 'audit.histories': '历史记录行', 'audit.stored': '仅存储（大群）', 'audit.undecodable': '无法理解的记录', 'audit.cut': '日志至事件', 'audit.at': '完成时间',
    'audit.intended.text': '应收到的收件箱', 'audit.acked.text': '设备已持有', 'audit.waiting.text': '为离线者保留', 'audit.expired.text': '等待过久', 'audit.dead.text': '无需保留',
    'audit.equals': '等于', 'audit.differs': '不等于', 'audit.plus': '加', 'audit.lost': '丢失', 'audit.twice': '重复', 'audit.message': '消息', 'audit.where': '位置', 'audit.why': '原因', 'audit.place': '用户 {user}，{platform}', 'audit.place.user': '用户 {user} 的历史', 'audit.place.group': '群组 {group} 的历史', 'audit.counts': '计数', 'audit.from': '接收时间不早于', 'audit.to': '接收时间早于', 'audit.window': '限定时间范围',
  },
});

const STALE_MS = 3_600_000;
const PARTS = ['acked', 'waiting', 'expired', 'dead'];
const COLOURS = { acked: '--chart-1', waiting: '--chart-2', expired: '--chart-3', dead: '--chart-4' };

const Term = ({ name, value, t, colour }) => html`<div class="term"><span class="value">${number(value)}</span><b>${colour && html`<i style=${{ background: `var(${colour})` }} />`}${t(`audit.${name}`)}</b><small>${t(`audit.${name}.text`)}</small></div>`;

function Equation({ report, t }) {
  const sum = PARTS.reduce((total, name) => total + report[name], 0);
  const fits = sum === report.intended;
  return html`<div class="equation" role="group" aria-label=${t('audit.counts')}>
    <${Term} name="intended" value=${report.intended} t=${t} />
    <span class="sign ${fits ? '' : 'bad'}" aria-label=${t(fits ? 'audit.equals' : 'audit.differs')}>${fits ? '=' : '≠'}</span>
    ${PARTS.map((name, index) => html`${index > 0 && html`<span class="sign" aria-label=${t('audit.plus')}>+</span>`}<${Term} name=${name} value=${report[name]} t=${t} colour=${COLOURS[name]} />`)}
  </div>
  ${sum > 0 && html`<div class="share" aria-hidden="true">${PARTS.filter((name) => report[name] > 0).map((name) => html`<i key=${name} style=${{ flexGrow: report[name], background: `var(${COLOURS[name]})` }} />`)}</div>`}`;
}

function place(row, t) {
  if (row.platform !== undefined) return t('audit.place', row);
  if (row.group !== undefined) return t('audit.place.group', row);
  return row.user === undefined ? '–' : t('audit.place.user', row);
}

function Named({ title, rows, t }) {
  const columns = [
    { key: 'message_id', title: t('audit.message'), show: (row) => html`<span class="mono">${row.message_id}</span>` },
    { key: 'where', title: t('audit.where'), show: (row) => place(row, t) },
    { key: 'reason', title: t('audit.why') },
  ];
  return html`<${Card} flush title=${title}><${Table} label=${title} columns=${columns} rows=${rows} /><//>`;
}

function Report({ report, at, t }) {
  const state = report.balanced ? 'good' : 'bad';
  const text = report.balanced ? (report.accepted ? t('audit.good.text', { n: number(report.accepted) }) : t('audit.none')) : t('audit.bad.text', { lost: number(report.lost_count ?? report.lost.length), twice: number(report.duplicate_count ?? report.duplicates.length) });
  const facts = { accepted: number(report.accepted), resent: number(report.resent), histories: report.histories && number(report.histories), stored: report.stored && number(report.stored), undecodable: report.undecodable && number(report.undecodable), cut: number(report.cut), at: moment(at) };
  return html`<${Verdict} state=${state} at=${at} staleMs=${STALE_MS} titles=${{ good: t('audit.good'), stale: t('audit.stale'), bad: t('audit.bad') }}><p>${text}</p><//>
    <${Card}><${Equation} report=${report} t=${t} /><//>
    ${report.lost.length > 0 && html`<${Named} title=${t('audit.lost')} rows=${report.lost} t=${t} />`}
    ${report.duplicates.length > 0 && html`<${Named} title=${t('audit.twice')} rows=${report.duplicates} t=${t} />`}
    <${Card}><dl class="facts">${Object.entries(facts).filter(([, value]) => value).map(([name, value]) => html`<dt key=${name}>${t(`audit.${name}`)}</dt><dd>${value}</dd>`)}</dl><//>`;
}

export default function Page({ client, t }) {
  const [state, setState] = useState({ report: null, error: null, busy: false, at: 0 });
  const [from, setFrom] = useState('');
  const [to, setTo] = useState('');
  const ms = (text) => (text ? new Date(text).getTime() : undefined);
  const run = async () => {
    setState((before) => ({ ...before, busy: true, error: null }));
    try {
      const report = await client.http('/v1/admin/audit', { query: { from: ms(from), to: ms(to) } });
      setState({ report, error: null, busy: false, at: Date.now() });
    } catch (error) {
      setState((before) => ({ ...before, error, busy: false }));
    }
  };
  const { report, error, busy, at } = state;
  const button = html`<${Button} kind="primary" icon="audit" busy=${busy} onClick=${run}>${t(busy ? 'audit.running' : report ? 'audit.again' : 'audit.run')}<//>`;
  return html`<${PageFrame} title=${t('nav.audit')} text=${t('audit.text')} actions=${report && button}>
    <details class="window"><summary>${t('audit.window')}</summary><div class="searching">
      <label class="field"><span>${t('audit.from')}</span><input class="input" type="datetime-local" value=${from} onInput=${(event) => setFrom(event.target.value)} /></label>
      <label class="field"><span>${t('audit.to')}</span><input class="input" type="datetime-local" value=${to} onInput=${(event) => setTo(event.target.value)} /></label>
    </div></details>
    ${error && html`<${ErrorBox} error=${error} onRetry=${run} />`}
    ${report ? html`<${Report} report=${report} at=${at} t=${t} />` : !error && html`<${Card}><${Empty} icon="audit" title=${t('audit.first')} text=${t('audit.first.how')}>${button}<//><//>`}
  <//>`;
}
