/** Placeholder of the page "audit". */
import { Empty, PageFrame, html } from '/ui.js';

export default function Page({ client, t }) {
  return html`<${PageFrame} title=${t('nav.audit')}><${Empty} icon="info" title=${t('soon.title')} /><//>`;
}
