/** Placeholder of the page "cluster". */
import { Empty, PageFrame, html } from '/ui.js';

export default function Page({ client, t }) {
  return html`<${PageFrame} title=${t('nav.cluster')}><${Empty} icon="info" title=${t('soon.title')} /><//>`;
}
