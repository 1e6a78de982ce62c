/** Placeholder of the page "pipeline". */
import { Empty, PageFrame, html } from '/ui.js';

export default function Page({ client, t }) {
  return html`<${PageFrame} title=${t('nav.pipeline')}><${Empty} icon="info" title=${t('soon.title')} /><//>`;
}
