/** Placeholder of the page "dead-letters". */
import { Empty, PageFrame, html } from '/ui.js';

export default function Page({ client, t }) {
  return html`<${PageFrame} title=${t('nav.dead-letters')}><${Empty} icon="info" title=${t('soon.title')} /><//>`;
}
