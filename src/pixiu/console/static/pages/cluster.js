/** The cluster: this one node, until there are more. */
import { bytes, duration, number } from '/format.js';
import { addWords } from '/i18n.js';
import { Badge, Card, Empty, Loaded, PageFrame, html, useLoad } from '/ui.js';

addWords({
  en: {
    'cluster.text': 'One node is a cluster of one.', 'cluster.one': 'This node is alone', 'cluster.how': 'It hosts every role itself. The map of nodes, partitions and links comes with the cluster part of Pixiu, which this server does not have yet.',
    'cluster.node': 'This node', 'cluster.version': 'Version', 'cluster.log': 'Log', 'cluster.leads': 'leads', 'cluster.follows': 'follows', 'cluster.followers': 'Followers', 'cluster.event': 'Newest event', 'cluster.up': 'Up for', 'cluster.memory': 'Memory',
  },
  zh: {
    'cluster.text': '一个节点，就是只有一个节点的集群。', 'cluster.one': '此节点单独运行', 'cluster.how': '所有角色都在此节点内。节点、分区与链路的地图属于貔貅的集群部分，本服务器尚未具备。',
    'cluster.node': '此节点', 'cluster.version': '版本', 'cluster.log': '日志', 'cluster.leads': '主', 'cluster.follows': '从', 'cluster.followers': '副本', 'cluster.event': '最新事件', 'cluster.up': '已运行', 'cluster.memory': '内存',
  },
});

export default function Page({ client, t }) {
  const load = useLoad(() => client.http('/v1/admin/stats'), [], 3000);
  return html`<${PageFrame} title=${t('nav.cluster')} text=${t('cluster.text')}>
    <${Loaded} of=${load}>${(now) => html`
      <${Card}><${Empty} icon="cluster" title=${t('cluster.one')} text=${t('cluster.how')} /><//>
      <${Card} title=${t('cluster.node')}><dl class="facts">
        <dt>${t('cluster.version')}</dt><dd>${now.version}</dd>
        <dt>${t('cluster.log')}</dt><dd><${Badge} tone="good">${t(now.queue.is_leader ? 'cluster.leads' : 'cluster.follows')}<//></dd>
        <dt>${t('cluster.followers')}</dt><dd>${number(now.queue.followers)}</dd>
        <dt>${t('cluster.event')}</dt><dd>${number(Number(now.queue.commit_event_id))}</dd>
        <dt>${t('cluster.up')}</dt><dd>${duration(now.uptime_ms)}</dd>
        <dt>${t('cluster.memory')}</dt><dd>${bytes(now.process.rss_bytes)}</dd>
      </dl><//>`}<//>
  <//>`;
}
