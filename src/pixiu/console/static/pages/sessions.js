/** Placeholder of the page "sessions". */
import { Empty, PageFrame, html } from '/ui.js';

export default function Page({ client, t }) {
  return html`<${PageFrame} title=${t('nav.sessions')}><${Empty} icon="info" title=${t('soon.title')} /><//>`;
}
