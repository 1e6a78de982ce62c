/** The pipeline's results, once there are any. */
import { addWords } from '/i18n.js';
import { Card, Empty, PageFrame, html } from '/ui.js';

addWords({
  en: { 'pipeline.text': 'What Spark makes of the log: archive, search, audit, latency, heat, usage.', 'pipeline.none': 'No results yet', 'pipeline.how': 'Charts of the jobs’ results come with the pipeline part of Pixiu, which this server does not have yet. Messages do not wait for it: it reads the log later.' },
  zh: { 'pipeline.text': 'Spark 从日志得到的结果：归档、搜索、审计、延迟、热度、用量。', 'pipeline.none': '还没有结果', 'pipeline.how': '各作业结果的图表属于貔貅的流水线部分，本服务器尚未具备。消息不会等待它：它之后再读取日志。' },
});

export default function Page({ t }) {
  return html`<${PageFrame} title=${t('nav.pipeline')} text=${t('pipeline.text')}><${Card}><${Empty} icon="pipeline" title=${t('pipeline.none')} text=${t('pipeline.how')} /><//><//>`;
}
