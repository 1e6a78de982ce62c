/** What the server finds in messages: a few beside the list of conversations, and a page of them. */
import { t, why } from '/i18n.js';
import { when } from '/format.js';
import { go, linkTo } from '/router.js';
import { Avatar, Button, Empty, ErrorBox, Icon, html, useEffect, useRef, useState } from '/ui.js';
import { linkToMessage, nameOf } from '/chat/text.js';

const FEW = 5;
const PAGE = 30;
const TYPING_MS = 300;
const BEFORE_CHARS = 40; // of a long text, shown before the first place

/** A text with the places that were looked for marked. Places are in code points, which are not what JavaScript counts. */
export function Marked({ text, places = [], isShort = false }) {
  const characters = [...text];
  const first = places[0]?.[0] ?? 0;
  const from = isShort && first > BEFORE_CHARS ? first - BEFORE_CHARS : 0;
  const pieces = from ? ['…'] : [];
  let at = from;
  for (const [begin, end] of places) {
    pieces.push(characters.slice(at, begin).join(''), html`<mark>${characters.slice(begin, end).join('')}</mark>`);
    at = end;
  }
  pieces.push(characters.slice(at).join(''));
  return html`<span class="line cut">${pieces}</span>`;
}

function Hit({ message, chat, isShort }) {
  const where = message.group !== undefined ? chat.rows.get(`g:${message.group}`)?.name ?? message.group : message.from === chat.me ? nameOf(message.to, chat) : '';
  return html`<a href=${linkToMessage(message, chat.me)} data-hit=${message.message_id}>
    <${Avatar} id=${message.from} name=${nameOf(message.from, chat)} />
    <span class="name cut">${nameOf(message.from, chat)}${where && html` <span class="muted">› ${where}</span>`}</span>
    <time class="number">${when(message.at)}</time>
    <${Marked} text=${message.text} places=${message.highlights} isShort=${isShort} />
  </a>`;
}

/** What went wrong, for people: no index yet, or the server's own words. */
const troubleOf = (error) => (error.code === 'unavailable' ? t('chat.search.off') : why(error));

/**
 * A few messages below the conversations that match by name. "Nothing found" is shown once the server has answered and
 * there is neither a conversation (`hasRows`) nor a message; where the server cannot search messages, a line says so.
 */
export function Found({ chat, query, hasRows }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let alive = true;
    const timer = setTimeout(async () => {
      try {
        const { messages, has_more: hasMore } = await chat.client.search({ q: query, limit: FEW });
        if (alive) setFound({ query, messages, hasMore });
      } catch (error) {
        if (alive) setFound({ query, error });
      }
    }, TYPING_MS);
    return () => {
      alive = false;
      clearTimeout(timer);
    };
  }, [query]);
  if (!found) return null;
  const nothing = !hasRows && found.query === query && html`<p class="nothing">${t('chat.nomatch', { q: query })}</p>`;
  if (found.error) return html`${nothing}<p class="nothing">${troubleOf(found.error)}</p>`;
  if (!found.messages.length) return nothing;
  return html`<h2 class="found">${t('chat.search.results')}</h2>
    ${found.messages.map((message) => html`<${Hit} key=${message.message_id} message=${message} chat=${chat} isShort />`)}
    ${found.hasMore && html`<a class="all" href=${linkTo('chat', 'search', query)}><${Icon} name="search" size=${18} />${t('chat.search.all')}</a>`}`;
}

/** The page: `#/chat/search/QUERY`. */
export function SearchPage({ chat, query, onBack }) {
  const [text, setText] = useState(query);
  const [order, setOrder] = useState('newest');
  const [found, setFound] = useState({ messages: [], cursor: null });
  const [busy, setBusy] = useState(false);
  const box = useRef(null);
  const turn = useRef(0);

  const load = async (before, cursor) => {
    turn.current += 1;
    const mine = turn.current;
    setBusy(true);
    try {
      const page = await chat.client.search({ q: query, order, limit: PAGE, ...(cursor && { cursor }) });
      if (mine === turn.current) setFound({ messages: [...before, ...page.messages], cursor: page.cursor, isDone: true });
    } catch (error) {
      if (mine === turn.current) setFound({ messages: before, cursor, error });
    }
    if (mine === turn.current) setBusy(false);
  };
  useEffect(() => {
    setText(query);
    setFound({ messages: [], cursor: null });
    if (query) load([], null);
    else box.current?.focus();
  }, [query, order]);

  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) go('chat', ['search', text.trim()]);
  };
  const { messages, cursor, error, isDone } = found;
  return html`<section class="thread finding" aria-label=${t('chat.search.title')}>
    <header class="head">
      <${Button} kind="quiet" icon="back" class="back" label=${t('chat.back')} onClick=${onBack} />
      <form class="search grow" role="search" onSubmit=${submit}>
        <${Icon} name="search" size=${18} />
        <input ref=${box} class="input" type="search" maxlength="256" aria-label=${t('chat.search.title')} placeholder=${t('chat.search.how')} value=${text} onInput=${(event) => setText(event.target.value)} />
      </form>
      <select class="input order" aria-label=${t('chat.search.order')} value=${order} onChange=${(event) => setOrder(event.target.value)}>
        <option value="newest">${t('chat.search.newest')}</option><option value="relevance">${t('chat.search.best')}</option>
      </select>
    </header>
    <div class="hits" aria-busy=${busy}>
      ${error && (error.code === 'unavailable' ? html`<${Empty} icon="search" title=${t('chat.search.off')} text=${t('chat.search.run')}><pre>pixiu pipeline run archive search --once</pre><//>` : html`<${ErrorBox} error=${error} onRetry=${() => load(messages, cursor)} />`)}
      ${!query && html`<${Empty} icon="search" title=${t('chat.search.title')} text=${t('chat.search.hint')} />`}
      ${isDone && !messages.length && html`<${Empty} icon="search" title=${t('chat.search.none')} text=${t('chat.search.hint')} />`}
      <nav aria-label=${t('chat.search.results')}>${messages.map((message) => html`<${Hit} key=${message.message_id} message=${message} chat=${chat} />`)}</nav>
      ${cursor && !error && html`<p class="more"><${Button} busy=${busy} onClick=${() => load(messages, cursor)}>${t('chat.search.more')}<//></p>`}
      ${busy && !messages.length && html`<div class="empty"><span class="spinner" role="status" aria-label=${t('loading')} /></div>`}
    </div>
  </section>`;
}
