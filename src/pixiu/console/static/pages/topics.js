/** Placeholder of the page "topics". */
import { Empty, PageFrame, html } from '/ui.js';

export default function Page({ client, t }) {
  return html`<${PageFrame} title=${t('nav.topics')}><${Empty} icon="info" title=${t('soon.title')} /><//>`;
}
