/** The queue's topics: how large, who is how far behind, and what comes in, as it comes. */
import { bytes, moment, number } from '/format.js';
import { addWords } from '/i18n.js';
import { go, linkTo } from '/router.js';
import { Badge, Button, Card, Empty, ErrorBox, Icon, Loaded, PageFrame, Table, Tabs, html, useEffect, useLoad, useRef, useState } from '/ui.js';

addWords({
  en: {
    'topics.text': 'Every message goes through the log; each topic is a view of it.', 'topics.none': 'No topics yet', 'topics.none.how': 'Make one, and publish to it:', 'topics.name': 'Topic', 'topics.size': 'Size', 'topics.newest': 'Newest event', 'topics.readers': 'Readers', 'topics.lag': 'Lag',
    'topics.created': 'Created', 'topics.own': 'Pixiu', 'topics.ends': 'ends {at}', 'topics.current': 'up to date', 'topics.behind': '{n} event behind|{n} events behind', 'topics.unread': 'no subscribers', 'topics.more': 'Show more',
    'topics.back': 'All topics', 'topics.tail': 'Newest messages', 'topics.live': 'live', 'topics.paused': 'paused', 'topics.pause': 'Pause', 'topics.go': 'Go on', 'topics.as': 'Show as', 'topics.as.text': 'Text', 'topics.as.hex': 'Hex',
    'topics.empty': 'Nothing was said here yet', 'topics.empty.how': 'What comes in appears here at once.', 'topics.sealed': 'Pixiu’s own topics show who and when. What people say is not shown to admins.', 'topics.cut': 'beginning of {size}', 'topics.skipped': 'More came than can be shown: some are passed over here.', 'topics.reader': 'Reader', 'topics.at': 'Has event', 'topics.state': 'State', 'topics.here': 'connected', 'topics.away': 'away',
  },
  zh: {
    'topics.text': '每条消息都经过日志；每个主题都是它的一个视图。', 'topics.none': '还没有主题', 'topics.none.how': '创建一个主题并发布消息：', 'topics.name': '主题', 'topics.size': '大小', 'topics.newest': '最新事件', 'topics.readers': '读者', 'topics.lag': '延迟',
    'topics.created': '创建于', 'topics.own': '系统', 'topics.ends': '{at} 到期', 'topics.current': '已跟上', 'topics.behind': '落后 {n} 个事件', 'topics.unread': '无订阅者', 'topics.more': '显示更多',
    'topics.back': '全部主题', 'topics.tail': '最新消息', 'topics.live': '实时', 'topics.paused': '已暂停', 'topics.pause': '暂停', 'topics.go': '继续', 'topics.as': '显示方式', 'topics.as.text': '文本', 'topics.as.hex': '十六进制',
    'topics.empty': '这里还没有消息', 'topics.empty.how': '新消息会立即出现在这里。', 'topics.sealed': '系统主题只显示何人何时。用户所说的内容不向管理员显示。', 'topics.cut': '共 {size}，仅显示开头', 'topics.skipped': '消息太多，此处略过一些。', 'topics.reader': '读者', 'topics.at': '已读到事件', 'topics.state': '状态', 'topics.here': '已连接', 'topics.away': '离线',
  },
});

const PAGE = 100;
const FIRST = 50;
const FOLLOWING = 200;
const TAIL_MAX = 300;
const LINE = 16;
const LAG_GOOD = 1000; // what is on its way in a busy second

const worst = (topic) => Math.max(0, ...topic.subscribers.map((each) => each.lag));

const LagBadge = ({ lag, t }) => (lag
  ? html`<${Badge} tone=${lag > LAG_GOOD ? 'gold' : ''}>${t('topics.behind', { n: number(lag) })}<//>`
  : html`<${Badge} tone="good">${t('topics.current')}<//>`);

function Lag({ topic, t }) {
  if (!topic.subscribers.length) return html`<span class="muted small">${t('topics.unread')}</span>`;
  const lag = worst(topic);
  return html`<${LagBadge} lag=${lag} t=${t} />`;
}

const Name = ({ topic, t }) => html`<span class="row"><a class="mono strong" href=${linkTo('topics', topic.name)}>${topic.name}</a>${topic.is_reserved && html`<${Badge} tone="accent">${t('topics.own')}<//>`}</span>`;

function List({ client, t }) {
  const [limit, setLimit] = useState(PAGE);
  const topics = useLoad(() => client.http('/v1/admin/topics', { query: { limit } }), [limit], 3000);
  const columns = [
    { key: 'name', title: t('topics.name'), show: (topic) => html`<${Name} topic=${topic} t=${t} />` },
    { key: 'bytes', title: t('topics.size'), right: true, show: (topic) => bytes(topic.bytes) },
    { key: 'last_event_id', title: t('topics.newest'), right: true, show: (topic) => (!Number(topic.last_event_id) ? '–' : number(Number(topic.last_event_id))) },
    { key: 'lag', title: t('topics.lag'), show: (topic) => html`<${Lag} topic=${topic} t=${t} />` },
    { key: 'at', title: t('topics.created'), show: (topic) => html`<span class="small nowrap">${moment(topic.at)}${topic.expires_at > 0 && html` · ${t('topics.ends', { at: moment(topic.expires_at) })}`}</span>` },
  ];
  const empty = html`<${Empty} icon="topics" title=${t('topics.none')} text=${t('topics.none.how')}><pre>pixiu queue create orders${'\n'}pixiu queue pub orders hello</pre><//>`;
  return html`<${PageFrame} title=${t('nav.topics')} text=${t('topics.text')}>
    <${Loaded} of=${topics}>${({ topics: rows, has_more: more }) => html`<${Card} flush class="topics-card">
      <${Table} label=${t('nav.topics')} columns=${columns} rows=${rows} keyOf=${(topic) => topic.name} onPick=${(topic) => go('topics', [topic.name])} empty=${empty} />
    <//>${more && limit < 1000 && html`<div class="row centre"><${Button} onClick=${() => setLimit(Math.min(limit * 3, 1000))}>${t('topics.more')}<//></div>`}`}<//>
  <//>`;
}

/** The topic, its newest messages, and those that follow, oldest first. Where too many come at once, some are passed over. */
function useTail(client, name, paused) {
  const [state, setState] = useState({ topic: null, rows: null, error: null });
  const last = useRef(0);
  const behind = useRef(false);
  useEffect(() => {
    if (paused) return undefined;
    let alive = true;
    let timer = 0;
    const look = async () => {
      try {
        const query = !last.current || behind.current ? { limit: FIRST } : { limit: FOLLOWING, after: last.current };
        const { topic, messages } = await client.http(`/v1/admin/topics/${encodeURIComponent(name)}/tail`, { query });
        if (!alive) return;
        const fresh = messages.filter((row) => Number(row.event_id) > last.current);
        if (behind.current && fresh.length === messages.length) fresh.unshift({ event_id: `before ${messages[0].event_id}`, isGap: true });
        if (messages.length) last.current = Number(messages[messages.length - 1].event_id);
        behind.current = query.after !== undefined && messages.length === FOLLOWING;
        setState((before) => ({ topic, rows: [...(before.rows ?? []), ...fresh].slice(-TAIL_MAX), error: null }));
      } catch (error) {
        if (alive) setState((before) => ({ ...before, error }));
      }
      if (alive) timer = setTimeout(look, document.hidden ? 5000 : 1000);
    };
    look();
    return () => {
      alive = false;
      clearTimeout(timer);
    };
  }, [name, paused]);
  return state;
}

const bytesOf = (body) => Uint8Array.from(atob(body), (each) => each.charCodeAt(0));

/** Lines of sixteen: where, the bytes, and the letters among them. */
export function hexOf(data) {
  const lines = [];
  for (let start = 0; start < data.length; start += LINE) {
    const part = [...data.slice(start, start + LINE)];
    const hex = part.map((each) => each.toString(16).padStart(2, '0')).join(' ');
    const letters = part.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : '·')).join('');
    lines.push(`${start.toString(16).padStart(6, '0')}  ${hex.padEnd(LINE * 3)} ${letters}`);
  }
  return lines.join('\n');
}

function Content({ row, view, t }) {
  if (row.body === undefined) {
    const to = row.group ?? row.to;
    return html`<p class="who"><${Badge} tone="accent">${row.what}<//>${row.from && html`<b>${row.from}</b>`}${to && html`<${Icon} name="send" size=${14} /><b>${to}</b>`}${row.user && html`<b>${row.user}</b>`}${row.reason && html`<span class="muted">${row.reason}</span>`}</p>`;
  }
  const data = bytesOf(row.body);
  const text = view === 'hex' ? hexOf(data) : new TextDecoder().decode(data);
  return html`${row.headers && html`<p class="headers">${Object.entries(row.headers).map(([key, value]) => html`<${Badge} key=${key}>${key}: ${value}<//>`)}</p>`}
    <pre class=${view}>${text}</pre>${row.is_cut && html`<small class="muted">${t('topics.cut', { size: bytes(row.bytes) })}</small>`}`;
}

function Tail({ rows, error, view, t, isReserved, actions }) {
  return html`<${Card} flush title=${t('topics.tail')} class="tail-card" actions=${html`<div class="row wrap end">${actions}</div>`}>
    ${isReserved && html`<div class="notice calm inset"><${Icon} name="lock" size=${16} />${t('topics.sealed')}</div>`}
    ${error && html`<div class="inset"><${ErrorBox} error=${error} /></div>`}
    ${rows === null ? !error && html`<div class="empty"><span class="spinner" role="status" aria-label=${t('loading')} /></div>` : !rows.length
      ? html`<${Empty} icon="topics" title=${t('topics.empty')} text=${t('topics.empty.how')} />`
      : html`<ol class="tail" aria-label=${t('topics.tail')} tabindex="0">${[...rows].reverse().map((row) => (row.isGap
          ? html`<li key=${row.event_id} class="gap">${t('topics.skipped')}</li>`
          : html`<li key=${row.event_id}><div class="facts-line"><span class="mono">#${row.event_id}</span><time>${moment(row.at)}</time><span>${bytes(row.bytes)}</span></div><${Content} row=${row} view=${view} t=${t} /></li>`))}</ol>`}
  <//>`;
}

function Topic({ client, name, t }) {
  const [paused, setPaused] = useState(false);
  const [view, setView] = useState('text');
  const { topic, rows, error } = useTail(client, name, paused);
  const columns = [
    { key: 'name', title: t('topics.reader'), show: (each) => html`<b class="mono">${each.name}</b>` },
    { key: 'state', title: t('topics.state'), show: (each) => html`<${Badge} tone=${each.is_live ? 'good' : ''}>${t(each.is_live ? 'topics.here' : 'topics.away')}<//>` },
    { key: 'event_id', title: t('topics.at'), right: true, show: (each) => number(Number(each.event_id)) },
    { key: 'lag', title: t('topics.lag'), right: true, show: (each) => html`<${LagBadge} lag=${each.lag} t=${t} />` },
  ];
  const isReserved = topic ? topic.is_reserved : name.startsWith('pixiu.');
  const facts = topic && [bytes(topic.bytes), `${t('topics.newest')} ${topic.last_event_id}`, `${t('topics.created')} ${moment(topic.at)}`].join(' · ');
  const actions = html`<${Badge} tone=${paused ? '' : 'good'}>${!paused && html`<span class="pulse" />`}${t(paused ? 'topics.paused' : 'topics.live')}<//>
    ${!isReserved && html`<${Tabs} label=${t('topics.as')} value=${view} options=${[['text', t('topics.as.text')], ['hex', t('topics.as.hex')]]} onChange=${setView} />`}
    <${Button} small icon=${paused ? 'play' : 'pause'} onClick=${() => setPaused(!paused)}>${t(paused ? 'topics.go' : 'topics.pause')}<//>`;
  return html`<${PageFrame} title=${html`<span class="mono">${name}</span>`} text=${facts}
    actions=${html`<${Button} icon="back" onClick=${() => go('topics')}>${t('topics.back')}<//>`}>
    ${topic?.subscribers.length > 0 && html`<${Card} flush title=${t('topics.readers')}><${Table} label=${t('topics.readers')} columns=${columns} rows=${topic.subscribers} keyOf=${(each) => each.name} /><//>`}
    <${Tail} rows=${rows} error=${error} view=${view} t=${t} isReserved=${isReserved} actions=${actions} />
  <//>`;
}

export default function Page({ client, t, parts }) {
  return parts[0] ? html`<${Topic} key=${parts[0]} client=${client} name=${parts[0]} t=${t} />` : html`<${List} client=${client} t=${t} />`;
}
