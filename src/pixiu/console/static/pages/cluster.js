/** The cluster: this node alone; at a gateway, where the map is, and the replica that leads the shard. */
import { bytes, duration, number } from '/format.js';
import { addWords } from '/i18n.js';
import { isCluster } from '/session.js';
import { Badge, Card, Elsewhere, Empty, Loaded, PageFrame, html, useLoad } from '/ui.js';

addWords({
  en: {
    'cluster.text': 'One node is a cluster of one.', 'cluster.one': 'This node is alone', 'cluster.how': 'It hosts every role itself. A cluster has many processes, and a map of them. Start one, or join this node to one:',
    'cluster.several': 'This node is one of several', 'cluster.several.how': 'Its log has other replicas. All of them, on the machine where the cluster was started:', 'cluster.many': 'Many processes, one cluster.', 'cluster.map': 'The map shows every process, partition and link. In a terminal, on its machine:',
    'cluster.node': 'This node', 'cluster.leader': 'The leader of the shard', 'cluster.version': 'Version', 'cluster.log': 'Log', 'cluster.leads': 'leads', 'cluster.follows': 'follows', 'cluster.followers': 'Followers', 'cluster.event': 'Newest event', 'cluster.up': 'Up for', 'cluster.memory': 'Memory',
  },
  zh: {
    'cluster.text': '一个节点，就是只有一个节点的集群。', 'cluster.one': '此节点单独运行', 'cluster.how': '所有角色都在此节点内。集群由许多进程组成，并有一张地图。可以启动一个集群，或让此节点加入：',
    'cluster.several': '此节点是多个节点之一', 'cluster.several.how': '它的日志另有副本。在启动集群的机器上可以查看全部：', 'cluster.many': '许多进程，一个集群。', 'cluster.map': '地图显示每个进程、分区和链路。也可在其机器的终端里运行：',
    'cluster.node': '此节点', 'cluster.leader': '分片的主副本', 'cluster.version': '版本', 'cluster.log': '日志', 'cluster.leads': '主', 'cluster.follows': '从', 'cluster.followers': '副本', 'cluster.event': '最新事件', 'cluster.up': '已运行', 'cluster.memory': '内存',
  },
});

export default function Page({ client, t }) {
  const load = useLoad(() => client.http('/v1/admin/stats'), [], 3000);
  return html`<${PageFrame} title=${t('nav.cluster')} text=${t(isCluster ? 'cluster.many' : 'cluster.text')}>
    <${Loaded} of=${load}>${(now) => html`
      ${isCluster ? html`<${Elsewhere} map=${now.map} text=${t('cluster.map')} command="pixiu cluster status" />` : !now.queue.is_leader || now.queue.followers > 0 ? html`<${Card}><${Empty} icon="cluster" title=${t('cluster.several')} text=${t('cluster.several.how')}><pre class="mono">pixiu cluster status</pre><//><//>` : html`<${Card}><${Empty} icon="cluster" title=${t('cluster.one')} text=${t('cluster.how')}><pre class="mono">pixiu cluster up examples/cluster-3.toml${'\n'}pixiu cluster join --registry zk://HOST:PORT/PATH</pre><//><//>`}
      <${Card} title=${t(isCluster ? 'cluster.leader' : 'cluster.node')}><dl class="facts">
        <dt>${t('cluster.version')}</dt><dd>${now.version}</dd>
        <dt>${t('cluster.log')}</dt><dd><${Badge} tone="good">${t(now.queue.is_leader ? 'cluster.leads' : 'cluster.follows')}<//></dd>
        <dt>${t('cluster.followers')}</dt><dd>${number(now.queue.followers)}</dd>
        <dt>${t('cluster.event')}</dt><dd>${number(Number(now.queue.commit_event_id))}</dd>
        <dt>${t('cluster.up')}</dt><dd>${duration(now.uptime_ms)}</dd>
        <dt>${t('cluster.memory')}</dt><dd>${bytes(now.process.rss_bytes)}</dd>
      </dl><//>`}<//>
  <//>`;
}
