/** Placeholder of the page "live". */
import { Empty, PageFrame, html } from '/ui.js';

export default function Page({ client, t }) {
  return html`<${PageFrame} title=${t('nav.live')}><${Empty} icon="info" title=${t('soon.title')} /><//>`;
}
