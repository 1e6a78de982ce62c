/** What goes on now: rates and latencies over time, hot rooms, connections, sizes. */
import { Chart } from '/chart.js';
import { bytes, duration, number, short } from '/format.js';
import { addWords, t } from '/i18n.js';
import { HOPS, between } from '/stats.js';
import { Badge, Card, Empty, Loaded, PageFrame, Stat, Table, html, useLoad } from '/ui.js';

addWords({
  en: {
    'live.text': 'What this server does now. The charts cover up to half an hour, also the time before this page was opened.', 'live.accepted': 'Accepted', 'live.delivered': 'Delivered', 'live.rooms': 'Room deliveries',
    'live.per': '{n}/s', 'live.connections': 'Connections', 'live.of': 'of {n}', 'live.sessions': '{n} session|{n} sessions', 'live.memory': 'Memory', 'live.cpu': 'CPU {n} %', 'live.said': '{n}/s sent',
    'live.rates': 'Durable messages per second', 'live.talk': 'Room messages per second', 'live.line.accepted': 'accepted', 'live.line.delivered': 'delivered', 'live.line.acked': 'inbox entries acked', 'live.line.room_deliveries': 'deliveries', 'live.line.room_messages': 'sent', 'live.files': 'Open files', 'live.version': 'Version', 'live.latency': 'Latency per hop, 99th percentile', 'live.hops': 'Hops', 'live.hop': 'Hop', 'live.hop.samples': 'Samples', 'live.hops.over': 'over the last {time}',
    'live.accept': 'accept', 'live.apply': 'apply', 'live.deliver': 'deliver', 'live.ack': 'ack',
    'live.accept.text': 'request → on disk', 'live.apply.text': 'on disk → in the stores', 'live.deliver.text': 'in the stores → pushed', 'live.ack.text': 'pushed → acked',
    'live.people': 'Connections and sessions', 'live.line.connections': 'connections', 'live.line.sessions': 'sessions',
    'live.hot': 'Hot rooms', 'live.hot.none': 'No messages in rooms', 'live.hot.how': 'Rooms with the most deliveries per second appear here while messages are sent in them.',
    'live.room': 'Room', 'live.deliveries': 'Deliveries/s', 'live.messages': 'Messages/s', 'live.members': 'Listeners', 'live.disk': 'Log and stores',
    'live.journal': 'Journal', 'live.stores': 'Stores', 'live.free': 'Free on disk', 'live.lag': 'Stores behind the log', 'live.events': '{n} event|{n} events', 'live.uptime': 'Up for', 'live.problems': 'Something is wrong',
  },
  zh: {
    'live.text': '服务器此刻的运行情况。图表最多覆盖半小时，包括打开本页之前的时间。', 'live.accepted': '已接收', 'live.delivered': '已投递', 'live.rooms': '房间投递',
    'live.per': '{n}/秒', 'live.connections': '连接', 'live.of': '上限 {n}', 'live.sessions': '{n} 个会话', 'live.memory': '内存', 'live.cpu': 'CPU {n} %', 'live.said': '发言 {n}/秒',
    'live.rates': '每秒持久消息', 'live.talk': '每秒房间发言', 'live.line.accepted': '已接收', 'live.line.delivered': '已投递', 'live.line.acked': '已确认收件箱条目', 'live.line.room_deliveries': '投递', 'live.line.room_messages': '发言', 'live.files': '打开的文件', 'live.version': '版本', 'live.latency': '各环节延迟（99 分位）', 'live.hops': '环节', 'live.hop': '环节', 'live.hop.samples': '样本', 'live.hops.over': '最近 {time}',
    'live.accept': '接收', 'live.apply': '应用', 'live.deliver': '投递', 'live.ack': '确认',
    'live.accept.text': '请求 → 落盘', 'live.apply.text': '落盘 → 存储', 'live.deliver.text': '存储 → 推送', 'live.ack.text': '推送 → 确认',
    'live.people': '连接与会话', 'live.line.connections': '连接', 'live.line.sessions': '会话',
    'live.hot': '热门房间', 'live.hot.none': '没有房间在发言', 'live.hot.how': '有人发言时，每秒投递最多的房间会出现在这里。',
    'live.room': '房间', 'live.deliveries': '投递/秒', 'live.messages': '消息/秒', 'live.members': '在听', 'live.disk': '日志与存储',
    'live.journal': '日志', 'live.stores': '存储', 'live.free': '磁盘剩余', 'live.lag': '存储落后日志', 'live.events': '{n} 个事件', 'live.uptime': '已运行', 'live.problems': '出现问题',
  },
});

const READINGS_MS = 40_000; // how long readings are kept for the tiles and the table
const SMOOTH = 5; // readings between which a rate of a tile is taken
const TABLE = 30; // and the table of hops
const SAMPLES_MAX = 1000; // in the charts; the server keeps 900
const LATE = 2.5; // periods without a sample after which a chart has a gap
const COLOURS = ['--chart-1', '--chart-2', '--chart-3', '--ink-3'];
const LINES = { durable: ['accepted', 'delivered', 'acked'], rooms: ['room_deliveries', 'room_messages'], people: ['connections', 'sessions'], latency: HOPS };
const COLUMNS = Object.values(LINES).flat();

/** Readings of the last seconds. */
const past = [];
/** Samples of the server, as rows of `[at, ...COLUMNS]`; a row of nulls is a gap. They stay while another page is open. */
let samples = [];
let startedAt = 0;
let everyMs = 0;
let charts = null;

function remember(now) {
  if (past.length && past[past.length - 1].started_at !== now.started_at) past.length = 0;
  while (past.length && now.at - past[0].at > READINGS_MS) past.shift(); // of a tab that was hidden, say
  past.push(now);
  return now;
}

/** Adds what the server has sampled since; draws a gap where it was away, paused or started again. */
function extend({ started_at: started, every_ms: every, samples: columns }) {
  const rows = [...samples];
  columns.at.forEach((at, index) => {
    const last = rows[rows.length - 1]?.[0] ?? at;
    if (rows.length && at <= last) return; // the clock was set back
    if (at - last > LATE * every || (rows.length && index === 0 && started !== startedAt)) rows.push([last + 1, ...COLUMNS.map(() => null)]);
    rows.push([at, ...COLUMNS.map((name) => columns[name]?.[index] ?? null)]);
  });
  samples = rows.slice(-SAMPLES_MAX);
  [startedAt, everyMs] = [started, every];
  const times = samples.map(([at]) => at / 1000);
  charts = Object.fromEntries(Object.entries(LINES).map(([chart, names]) => [chart, [times, ...names.map((name) => samples.map((row) => row[COLUMNS.indexOf(name) + 1]))]]));
}

async function read(client) {
  const now = remember(await client.http('/v1/admin/stats'));
  const newest = samples[samples.length - 1]?.[0] ?? 0;
  if (!charts || now.started_at !== startedAt || now.at - newest >= everyMs) extend(await client.http('/v1/admin/stats/history', { query: { after: now.started_at === startedAt ? newest : 0 } }));
  return now;
}

const milliseconds = (value) => (value === null ? '–' : value < 1 ? t('unit.us', { n: number(Math.round(value * 1000)) }) : duration(value));

function Hops({ t }) {
  const now = past[past.length - 1];
  const since = between(past[Math.max(past.length - 1 - TABLE, 0)], now);
  const worst = Math.max(...HOPS.map((hop) => since?.hops[hop].p99 ?? 0), 0.001);
  const rows = HOPS.map((hop, index) => ({ hop, colour: COLOURS[index], ...(since?.hops[hop] ?? { p50: null, p90: null, p99: null, count: 0 }) }));
  const columns = [
    { key: 'hop', title: t('live.hop'), show: (row) => html`<span class="hop"><i style=${{ background: `var(${row.colour})` }} /><span><b>${t(`live.${row.hop}`)}</b><small>${t(`live.${row.hop}.text`)}</small></span></span>` },
    { key: 'bar', title: '', show: (row) => html`<span class="meter" aria-hidden="true"><i style=${{ width: `${Math.max(((row.p99 ?? 0) / worst) * 100, row.p99 ? 2 : 0)}%`, background: `var(${row.colour})` }} /></span>` },
    { key: 'p50', title: 'p50', right: true, show: (row) => milliseconds(row.p50) },
    { key: 'p90', title: 'p90', right: true, show: (row) => milliseconds(row.p90) },
    { key: 'p99', title: 'p99', right: true, show: (row) => milliseconds(row.p99) },
    { key: 'count', title: t('live.hop.samples'), right: true, show: (row) => short(row.count) },
  ];
  return html`<${Card} flush title=${t('live.hops')} actions=${since && html`<span class="small muted">${t('live.hops.over', { time: duration(Math.round(since.seconds) * 1000) })}</span>`}>
    <${Table} label=${t('live.hops')} columns=${columns} rows=${rows} keyOf=${(row) => row.hop} /><//>`;
}

function HotRooms({ rooms, t }) {
  const most = Math.max(...rooms.map((room) => room.deliveries), 1);
  const columns = [
    { key: 'room', title: t('live.room'), show: (row) => html`<b>${row.room}</b>` },
    { key: 'bar', title: '', show: (row) => html`<span class="meter" aria-hidden="true"><i style=${{ width: `${(row.deliveries / most) * 100}%`, background: 'var(--gold)' }} /></span>` },
    { key: 'deliveries', title: t('live.deliveries'), right: true, show: (row) => short(row.deliveries) },
    { key: 'messages', title: t('live.messages'), right: true, show: (row) => short(row.messages) },
    { key: 'members', title: t('live.members'), right: true, show: (row) => number(row.members) },
  ];
  const empty = html`<${Empty} icon="room" title=${t('live.hot.none')} text=${t('live.hot.how')} />`;
  return html`<${Card} flush title=${t('live.hot')}><${Table} label=${t('live.hot')} columns=${columns} rows=${rooms} keyOf=${(row) => row.room} empty=${empty} /><//>`;
}

export default function Page({ client, t }) {
  const load = useLoad(() => read(client), [], 1000);
  return html`<${PageFrame} title=${t('nav.live')} text=${t('live.text')} actions=${load.data && html`<${Badge} tone=${load.error ? 'bad' : 'good'}><span class="pulse" />${t('live.uptime')} ${duration(load.data.uptime_ms)}<//>`}>
    <${Loaded} of=${load}>${(now) => {
      const since = between(past[Math.max(past.length - 1 - SMOOTH, 0)], now);
      const rate = (name) => t('live.per', { n: since ? short(since.rate(name)) : '–' });
      const lag = Math.max(...now.lanes.map((lane) => lane.lag), 0);
      const lines = (chart) => LINES[chart].map((name, index) => ({ label: t(`live.line.${name}`), colour: COLOURS[index] }));
      return html`
        ${now.problems.length > 0 && html`<div class="notice" role="alert"><b>${t('live.problems')}</b> ${now.problems.join('; ')}</div>`}
        <dl class="grid tiles">
          <${Stat} label=${t('live.accepted')} value=${rate('accepted')} />
          <${Stat} label=${t('live.delivered')} value=${rate('delivered')} />
          <${Stat} label=${t('live.rooms')} value=${rate('room_deliveries')} hint=${t('live.said', { n: since ? short(since.rate('room_messages')) : '–' })} />
          <${Stat} label=${t('live.connections')} value=${short(now.connections)} hint=${`${t('live.of', { n: short(now.connections_max) })} · ${t('live.sessions', { n: now.sessions })}`} />
          <${Stat} label=${t('live.memory')} value=${bytes(now.process.rss_bytes)} hint=${t('live.cpu', { n: since ? Math.round(since.cpu * 100) : '–' })} />
        </dl>
        <div class="grid wide">
          <${Card} title=${t('live.rates')}><${Chart} label=${t('live.rates')} filled series=${lines('durable')} data=${charts.durable} format=${short} /><//>
          <${Card} title=${t('live.latency')}><${Chart} label=${t('live.latency')} log series=${HOPS.map((hop, index) => ({ label: t(`live.${hop}`), colour: COLOURS[index] }))} data=${charts.latency} format=${milliseconds} /><//>
        </div>
        <${Hops} t=${t} />
        <div class="grid wide">
          <${Card} title=${t('live.talk')}><${Chart} label=${t('live.talk')} filled height=${150} series=${lines('rooms')} data=${charts.rooms} format=${short} /><//>
          <${Card} title=${t('live.people')}><${Chart} label=${t('live.people')} filled whole height=${150} series=${[{ label: t('live.line.connections'), colour: '--chart-1' }, { label: t('live.line.sessions'), colour: '--chart-3' }]} data=${charts.people} format=${short} /><//>
          <${HotRooms} rooms=${now.hot_rooms} t=${t} />
          <${Card} title=${t('live.disk')}><dl class="facts">
            <dt>${t('live.journal')}</dt><dd>${bytes(now.queue.journal_bytes)}</dd>
            <dt>${t('live.stores')}</dt><dd>${bytes(now.stores.stores_bytes)}</dd>
            <dt>${t('live.lag')}</dt><dd>${lag > 1000 ? html`<${Badge} tone="gold">${t('live.events', { n: number(lag) })}<//>` : t('live.events', { n: number(lag) })}</dd>
            <dt>${t('live.free')}</dt><dd>${bytes(now.stores.free_bytes)}</dd>
            <dt>${t('live.files')}</dt><dd>${number(now.process.open_files ?? 0)}</dd>
            <dt>${t('live.version')}</dt><dd>${now.version}</dd>
          </dl><//>
        </div>`;
    }}<//>
  <//>`;
}
