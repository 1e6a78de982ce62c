/** The list of conversations, with search. */
import { t } from '/i18n.js';
import { when } from '/format.js';
import { go } from '/router.js';
import { Avatar, Button, Empty, Icon, MenuButton, html, useEffect, useRef, useState } from '/ui.js';
import { Found } from '/chat/search.js';
import { lineOf, linkToRow } from '/chat/text.js';

/** A face for a conversation. */
export function Face({ row, size = '' }) {
  if (row.place.room !== undefined) return html`<${Avatar} id=${row.key} icon="room" square size=${size} />`;
  if (row.place.group !== undefined) return html`<${Avatar} id=${row.key} name=${row.name} square size=${size} />`;
  if (row.key === 'u:0') return html`<${Avatar} id=${row.key} icon="audit" size=${size} />`;
  return html`<${Avatar} id=${row.id} name=${row.name} size=${size} state=${row.state} />`;
}

export function ConversationList({ chat, current, onNew }) {
  const [text, setText] = useState('');
  const list = useRef(null);
  const box = useRef(null);
  const query = text.trim().toLowerCase();
  const rows = chat.list().filter((row) => !query || row.name.toLowerCase().includes(query) || row.id.toLowerCase().includes(query));

  useEffect(() => {
    const slash = (event) => {
      const busy = event.target.closest?.('input, textarea, dialog');
      if (event.key !== '/' || busy || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      box.current?.focus();
    };
    window.addEventListener('keydown', slash);
    return () => window.removeEventListener('keydown', slash);
  }, []);

  const move = (event) => {
    if (event.key === 'Enter' && event.target === box.current && text.trim()) {
      event.preventDefault();
      go('chat', ['search', text.trim()]);
      return;
    }
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === 'Escape' && text) {
      setText('');
      event.stopPropagation();
      return;
    }
    if (!step || (event.target === box.current && event.key !== 'ArrowDown')) return;
    const links = [...list.current.querySelectorAll('a')];
    if (!links.length) return;
    event.preventDefault();
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + step))].focus();
  };

  return html`<aside class="list" onKeyDown=${move}>
    <header>
      <${MenuButton} />
      <h1>${t('chat.title')}</h1>
      <span class="me" title=${chat.me}><${Avatar} id=${chat.me} size="s" /><span class="cut">${chat.me}</span></span>
      <${Button} kind="primary" icon="plus" label=${t('chat.new')} onClick=${onNew} />
    </header>
    <div class="search">
      <${Icon} name="search" size=${18} />
      <input ref=${box} class="input" type="search" aria-label=${t('chat.filter')} placeholder=${t('chat.filter')} value=${text} onInput=${(event) => setText(event.target.value)} />
    </div>
    <nav ref=${list} aria-label=${t('chat.list')}>
      ${rows.map((row) => html`<${Row} key=${row.key} chat=${chat} row=${row} isCurrent=${row.key === current} />`)}
      ${!rows.length && !query && html`<${Empty} icon="chat" title=${t('chat.none')} text=${t('chat.none.how')}><${Button} kind="primary" icon="plus" onClick=${onNew}>${t('chat.new')}<//><//>`}
      ${query && html`<${Found} chat=${chat} query=${query} hasRows=${rows.length > 0} />`}
    </nav>
  </aside>`;
}

function Row({ chat, row, isCurrent }) {
  const typing = [...row.typing.keys()];
  const line = typing.length ? (row.place.group !== undefined ? t('chat.types', { who: typing[0] }) : t('chat.typing')) : lineOf(row, chat);
  const draft = !isCurrent && chat.drafts.get(row.key);
  const label = [row.name, row.unread > 0 && t('chat.unread', { n: row.unread }), row.state && t(`chat.${row.state}`)].filter(Boolean).join(', ');
  return html`<a href=${linkToRow(row.key)} class=${row.unread > 0 ? 'unread' : ''} aria-current=${isCurrent ? 'true' : undefined} aria-label=${label} data-key=${row.key}>
    <${Face} row=${row} />
    <span class="name cut">${row.name}</span>
    <time class="number">${row.last ? when(row.last.at) : ''}</time>
    <span class="line cut ${typing.length ? 'typing' : ''}">${draft ? html`<em>✎ </em>${draft}` : line}</span>
    ${row.unread > 0 && html`<span class="count">${row.unread > 99 ? '99+' : row.unread}</span>`}
  </a>`;
}
