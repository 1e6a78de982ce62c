/** Placeholder of the chat. */
import { Empty, PageFrame, html } from '/ui.js';

export default function Page({ client, t }) {
  return html`<${PageFrame} title=${t('nav.chat')}><${Empty} icon="chat" title=${t('soon.title')} /><//>`;
}
