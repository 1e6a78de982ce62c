/** The pipeline: what it does now, and what its tables say of usage, latency, heat and the audit. */
import '/pipeline/words.js';
import { Chart } from '/chart.js';
import { bytes, duration, moment, number, short } from '/format.js';
import { Bars, HeatMap } from '/pipeline/charts.js';
import { go } from '/router.js';
import { Badge, Card, Elsewhere, Empty, Icon, Loaded, PageFrame, Stat, Table, Tabs, html, useEffect, useLoad, useReducer } from '/ui.js';
import { Verdict } from '/verdict.js';

const REPORT_MS = 30_000; // the server takes 25 s at most
const OUTDATED_MS = 3000;
const STALE_MS = 3_600_000; // an audit with newer events after it; the pipeline makes one every 15 minutes
const TABS = ['usage', 'latency', 'heat', 'audit', 'tables'];
const COLOURS = ['--chart-1', '--chart-2', '--chart-3', '--chart-4', '--ink-3', '--gold', '--good', '--ink-2'];
const TONES = { running: 'good', starting: 'good', waiting: 'good', resting: 'good', installing: 'gold', failed: 'bad' };
const percent = (share) => (share === null ? '–' : `${number(Math.round(share * 1000) / 10)} %`);
const ms = (value) => (value === null ? '–' : duration(value));
const hopName = (hop, t) => {
  const text = t(`pipeline.hop.${hop}`);
  return text.startsWith('pipeline.') ? hop : text; // one that this console does not know yet
};
const seconds = (times) => times.map((each) => each / 1000);

/** What it does now. Counts the seconds down by itself. */
function State({ state, t }) {
  const [, tick] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    const timer = setInterval(tick, 1000);
    return () => clearInterval(timer);
  }, []);
  const left = state.next_at ? Math.max(0, Math.ceil((state.next_at - Date.now()) / 1000)) : null;
  const name = state.state === 'resting' && left !== null && !state.last_run ? 'first' : state.state;
  const busy = ['installing', 'starting', 'running'].includes(name);
  const counted = ['first', 'waiting', 'failed'].includes(name);
  const words = counted && !left ? t('pipeline.say.now') : t(`pipeline.say.${name}`, { s: left });
  const progress = name === 'running' && state.progress ? t('pipeline.say.progress', { table: state.progress.table, n: number(state.progress.lag) }) : '';
  const last = state.last_run;
  return html`<${Card}><div class="pipeline-state" role="status">
    <${Badge} tone=${TONES[state.state] ?? ''}>${busy && html`<span class="pulse" />`}${t(`pipeline.state.${name}`)}<//>
    <span class="grow">${state.reason && html`<b>${state.reason}</b> `}<span class="muted">${progress || words}</span></span>
    <dl class="facts-line"><dt>${t('pipeline.lag')}</dt><dd>${state.lag === undefined || state.lag === null ? '–' : t('pipeline.events', { n: number(state.lag) })}</dd>
      <dt>${t('pipeline.last')}</dt><dd>${last ? `${moment(last.at)}, ${t('pipeline.took', { rows: number(last.rows), time: duration(last.seconds * 1000) })}` : t('pipeline.never')}</dd></dl>
  </div><//>`;
}

const Nothing = ({ t }) => html`<${Card}><${Empty} icon="pipeline" title=${t('pipeline.nothing')} text=${t('pipeline.none.how')} /><//>`;

function Usage({ report, t }) {
  const { usage, heat } = report;
  if (!usage.days.length) return html`<${Nothing} t=${t} />`;
  const today = usage.days[usage.days.length - 1];
  const day = (each) => each.day.slice(5);
  const bars = (title, label, list, more = {}) => list.length > 0 && html`<${Card} title=${title}><${Bars} label=${label} bars=${list} format=${short} ...${more} /><//>`;
  return html`<dl class="grid tiles">
      <${Stat} label=${t('pipeline.active.day')} value=${short(usage.active_day)} />
      <${Stat} label=${t('pipeline.active.week')} value=${short(usage.active_week)} />
      <${Stat} label=${t('pipeline.active.month')} value=${short(usage.active_month)} hint=${t('pipeline.users', { n: number(usage.users) })} />
      <${Stat} label=${t('pipeline.messages.day')} value=${short(today.messages)} />
    </dl>
    <${Card} title=${t('pipeline.over')}><${Chart} label=${t('pipeline.over')} filled whole series=${[{ label: t('pipeline.said'), colour: '--chart-1' }]} data=${[seconds(heat.minutes), heat.messages]} format=${short} /><//>
    <div class="grid wide">
      ${bars(t('pipeline.active'), t('pipeline.active'), usage.days.map((each) => ({ name: day(each), parts: [each.returning, each.new] })), { labels: [t('pipeline.returning'), t('pipeline.new')] })}
      ${bars(t('pipeline.messages'), t('pipeline.messages'), usage.days.map((each) => ({ name: day(each), parts: [each.messages] })))}
      ${bars(t('pipeline.kinds'), t('pipeline.kinds'), usage.kinds.map((each) => ({ name: each.kind, parts: [each.messages] })))}
      ${bars(t('pipeline.platforms'), t('pipeline.platforms'), usage.platforms.map((each) => ({ name: each.platform || '–', parts: [each.users] })))}
      ${bars(t('pipeline.active.months'), t('pipeline.active.months'), usage.months.map((each) => ({ name: each.month, parts: [each.active] })))}
      ${bars(t('pipeline.retention'), t('pipeline.retention'), usage.retention.map((each) => ({ name: String(each.after_days), parts: [each.share * 100] })), { format: (value) => `${short(value)} %` })}
    </div>`;
}

function Latency({ report, t }) {
  const { latency } = report;
  if (!latency.links.length) return html`<${Nothing} t=${t} />`;
  const within = { ms: latency.within_ms };
  const series = latency.series.map((each, index) => ({ label: hopName(each.hop, t), colour: COLOURS[index % COLOURS.length] }));
  const columns = [
    { key: 'hop', title: t('pipeline.hop'), show: (row) => html`<b>${hopName(row.hop, t)}</b>` },
    { key: 'link', title: t('pipeline.link') },
    { key: 'messages', title: t('pipeline.samples'), right: true, show: (row) => number(row.messages) },
    ...['p50', 'p90', 'p99'].map((key) => ({ key, title: key, right: true, show: (row) => ms(row[key]) })),
    { key: 'max_ms', title: t('pipeline.max'), right: true, show: (row) => ms(row.max_ms) },
    { key: 'share', title: t('pipeline.within', within), right: true, show: (row) => html`<${Badge} tone=${row.share_in_time >= 0.99 ? 'good' : row.share_in_time >= 0.9 ? 'gold' : 'bad'}>${percent(row.share_in_time)}<//>` },
  ];
  return html`<div class="grid wide">
      <${Card} title=${t('pipeline.latency.p99')}><${Chart} label=${t('pipeline.latency.p99')} series=${series} data=${[seconds(latency.minutes), ...latency.series.map((each) => each.p99)]} format=${ms} /><//>
      <${Card} title=${t('pipeline.latency.share', within)}><${Chart} label=${t('pipeline.latency.share', within)} series=${series} data=${[seconds(latency.minutes), ...latency.series.map((each) => each.share_in_time.map((share) => (share === null ? null : share * 100)))]} format=${(value) => `${short(value)} %`} /><//>
    </div>
    <${Card} flush title=${t('pipeline.links')} actions=${html`<span class="small muted">${t('pipeline.window')}</span>`}>
      <${Table} label=${t('pipeline.links')} columns=${columns} rows=${latency.links} keyOf=${(row) => `${row.hop} ${row.link}`} /><//>`;
}

function Heat({ report, t }) {
  const { heat } = report;
  if (!heat.conversations.length) return html`<${Nothing} t=${t} />`;
  const most = heat.conversations[0].messages;
  const columns = [
    { key: 'name', title: t('pipeline.conversation'), show: (row) => html`<b>${row.name}</b>` },
    { key: 'kind', title: t('pipeline.kind'), show: (row) => html`<${Badge}>${t(`pipeline.kind.${row.kind}`)}<//>` },
    { key: 'bar', title: '', show: (row) => html`<span class="meter" aria-hidden="true"><i style=${{ width: `${(row.messages / most) * 100}%`, background: 'var(--gold)' }} /></span>` },
    { key: 'messages', title: t('pipeline.said'), right: true, show: (row) => number(row.messages) },
    { key: 'share', title: t('pipeline.share'), right: true, show: (row) => percent(row.share) },
    { key: 'peak', title: t('pipeline.peak'), right: true, show: (row) => number(row.peak_per_minute) },
  ];
  return html`<${Card} title=${t('pipeline.map')} actions=${html`<span class="small muted">${t('pipeline.map.how', { time: duration(heat.step_ms) })}</span>`}>
      <${HeatMap} label=${t('pipeline.map')} times=${heat.minutes} rows=${heat.map} format=${number} /><//>
    <${Card} flush title=${t('pipeline.busiest')}><${Table} label=${t('pipeline.busiest')} columns=${columns} rows=${heat.conversations} keyOf=${(row) => row.conversation} /><//>
    <${Card} title=${t('pipeline.partitions')}><${Bars} label=${t('pipeline.partitions')} bars=${heat.buckets.map((each) => ({ name: String(each.bucket), parts: [each.messages] }))} format=${short} />
      <p class="small muted">${t('pipeline.skew', { n: number(heat.skew) })}</p><//>`;
}

function Audit({ report, now: state, t }) {
  const { audit } = report;
  if (!audit || audit.intended === null) return html`<${Card}><${Empty} icon="audit" title=${t('pipeline.audit.none')} text=${t('pipeline.audit.none.how')} /><//>`;
  const verdict = audit.balanced === null ? 'open' : audit.balanced ? 'good' : 'bad';
  const counts = Object.fromEntries(Object.entries(audit).filter(([, value]) => typeof value === 'number').map(([name, value]) => [name, number(value)]));
  const columns = [
    { key: 'finding', title: t('pipeline.finding') },
    { key: 'message_id', title: t('pipeline.message'), show: (row) => html`<span class="mono">${row.message_id}</span>` },
    { key: 'inbox', title: t('pipeline.inbox'), show: (row) => (row.user_id ? `${row.user_name ?? row.user_id}, ${row.platform}` : '–') },
    { key: 'reason', title: t('pipeline.reason') },
  ];
  const since = Math.max(0, Number(state.log ?? 0) - Number(audit.through));
  const facts = { at: audit.at ? moment(audit.at) : '–', through: number(Number(audit.through)), inboxes: number(audit.inboxes), resent: number(audit.resent ?? 0), reordered: number(audit.reordered ?? 0), late: number(audit.late ?? 0) };
  const titles = Object.fromEntries(['good', 'stale', 'bad', 'open'].map((name) => [name, t(`pipeline.audit.${name}`)]));
  return html`<${Verdict} state=${verdict} at=${audit.at} staleMs=${since > 0 ? STALE_MS : undefined} titles=${titles}>
      <p>${t(verdict === 'open' ? 'pipeline.audit.expected' : 'pipeline.audit.text', counts)}</p>${verdict === 'open' && html`<p>${t('pipeline.audit.open.text')}</p>`}
      <p class="small">${t('pipeline.audit.age', { through: number(Number(audit.through)) })}${since > 0 && html` ${t('pipeline.audit.behind', { n: number(since) })}`}</p><//>
    ${audit.findings.length > 0 && html`<${Card} flush title=${t('pipeline.findings')}><${Table} label=${t('pipeline.findings')} columns=${columns} rows=${audit.findings} /><//>`}
    <${Card}><dl class="facts">${Object.entries(facts).map(([name, value]) => html`<dt key=${name}>${t(`pipeline.audit.${name}`)}</dt><dd>${value}</dd>`)}</dl><//>`;
}

function Tables({ report, t }) {
  const columns = [
    { key: 'table', title: t('pipeline.table'), show: (row) => html`<b>${row.table}</b>` },
    { key: 'through', title: t('pipeline.through'), right: true, show: (row) => number(Number(row.through)) },
    { key: 'lag', title: t('pipeline.lag'), right: true, show: (row) => number(row.lag) },
    { key: 'rows', title: t('pipeline.rows'), right: true, show: (row) => number(row.rows) },
    { key: 'files', title: t('pipeline.files'), right: true, show: (row) => number(row.files) },
    { key: 'bytes', title: t('pipeline.size'), right: true, show: (row) => bytes(row.bytes) },
  ];
  return html`<${Card} flush title=${t('pipeline.tab.tables')}><${Table} label=${t('pipeline.tab.tables')} columns=${columns} rows=${report.tables} keyOf=${(row) => row.table} /><//>
    <p class="small muted">${t('pipeline.sql')}</p>`;
}

const SHOWN = { usage: Usage, latency: Latency, heat: Heat, audit: Audit, tables: Tables };

function Charts({ client, tab, now, t }) {
  const load = useLoad(() => client.http('/v1/admin/pipeline/report', { timeoutMs: REPORT_MS }), [now.last_run?.at ?? 0], 30_000);
  useEffect(() => {
    if (!load.data?.is_outdated) return undefined;
    const timer = setTimeout(load.reload, OUTDATED_MS); // a newer one is being made
    return () => clearTimeout(timer);
  }, [load.data]);
  const Shown = SHOWN[tab];
  if (load.data === null && !load.error) return html`<div class="empty"><span class="spinner" role="status" aria-label=${t('loading')} /><p>${t('pipeline.reading')}</p></div>`;
  return html`<${Loaded} of=${load}>${(report) => {
    if (report.empty) return html`<${Card}><${Empty} icon="pipeline" title=${t('pipeline.none')} text=${t('pipeline.none.how')} /><//>`;
    if (report.problem) return html`<div class="notice" role="alert"><${Icon} name="alert" /><span><b>${t('pipeline.problem')}</b> ${report.problem}</span></div>`;
    return html`<${Tabs} label=${t('pipeline.tabs')} value=${tab} options=${TABS.map((name) => [name, t(`pipeline.tab.${name}`)])} onChange=${(name) => go('pipeline', [name])} /><${Shown} report=${report} now=${now} t=${t} />`;
  }}<//>`;
}

export default function Page({ client, t, parts }) {
  const load = useLoad(() => client.http('/v1/admin/pipeline'), [], 2000);
  const tab = TABS.includes(parts[0]) ? parts[0] : 'usage';
  return html`<${PageFrame} title=${t('nav.pipeline')} text=${t('pipeline.text')}>
    <${Loaded} of=${load} elsewhere=${() => html`<${Elsewhere} text=${t('pipeline.elsewhere')} command=${'pixiu pipeline run --data pixiu-cluster/nodes/shard-0-0\npixiu pipeline report --data pixiu-cluster/nodes/shard-0-0'} />`}>${(state) => html`<${State} state=${state} t=${t} /><${Charts} client=${client} tab=${tab} now=${state} t=${t} />`}<//>
  <//>`;
}
