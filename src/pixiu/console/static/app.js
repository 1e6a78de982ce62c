/** The console: who you are, the list of pages, and the page that is open. */
import '/words.js';
import { language, setLanguage, t, whenLanguageChanges, why } from '/i18n.js';
import { go, linkTo, useRoute } from '/router.js';
import { dataHint, isCluster, isDev, logInAs, logInWith, logOut, resume } from '/session.js';
import { setTheme, theme, whenThemeChanges } from '/theme.js';
import { Button, ErrorBox, Field, Icon, PageFrame, Toasts, html, render, useEffect, useReducer, useState } from '/ui.js';

const PAGES = [
  ['chat', 'chat'], ['live', 'live'], ['topics', 'topics'], ['dead-letters', 'dead'], ['sessions', 'sessions'],
  ['audit', 'audit'], ['cluster', 'cluster'], ['pipeline', 'pipeline'],
];
const WARM_MS = 2000;
const NAMES = new Set(PAGES.map(([name]) => name));
/** Every page but the chat is for admins; the API refuses the others' requests in any case. */
const isOpenTo = (client, name) => name === 'chat' || client.mayLookAfter;

function App() {
  const [, again] = useReducer((n) => n + 1, 0);
  const [client, setClient] = useState(resume);
  useEffect(() => {
    const stops = [whenLanguageChanges(again), whenThemeChanges(again)];
    return () => stops.forEach((stop) => stop());
  }, []);
  useEffect(() => {
    window.pixiu = client; // for whoever opens the browser's console
  }, [client]);
  const leave = () => {
    logOut(client);
    setClient(null);
  };
  return html`${client ? html`<${Shell} key=${client.id} client=${client} onLeave=${leave} />` : html`<${LogIn} onClient=${setClient} />`}<${Toasts} />`;
}

function LanguageButton({ named }) {
  const next = language() === 'zh' ? 'en' : 'zh';
  const props = { 'aria-label': t('language.label'), onClick: () => setLanguage(next) };
  return named
    ? html`<button type="button" class="tool" ...${props}><${Icon} name="globe" size=${22} /><span>${t('language.switch')}</span></button>`
    : html`<${Button} kind="quiet" icon="globe" ...${props}>${t('language.switch')}<//>`;
}

function ThemeButton({ named }) {
  const next = theme() === 'dark' ? 'light' : 'dark';
  const icon = next === 'dark' ? 'moon' : 'sun';
  const props = { 'aria-label': t(`theme.to.${next}`), onClick: () => setTheme(next) };
  return named
    ? html`<button type="button" class="tool" ...${props}><${Icon} name=${icon} size=${22} /><span>${t(`theme.${next}`)}</span></button>`
    : html`<${Button} kind="quiet" icon=${icon} label=${t(`theme.to.${next}`)} ...${props} />`;
}

function LogIn({ onClient }) {
  const [byName, setByName] = useState(isDev);
  const [text, setText] = useState('');
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState('');
  const submit = async (event) => {
    event.preventDefault();
    const given = text.trim();
    if (!given || busy) return;
    setBusy(true);
    try {
      onClient(await (byName ? logInAs(given) : logInWith(given)));
    } catch (error) {
      setProblem(error.code === 'unauthenticated' ? t('login.bad') : why(error));
      setBusy(false);
    }
  };
  const other = () => {
    setByName(!byName);
    setText('');
    setProblem('');
  };
  return html`<main class="welcome">
    <div class="corner"><${LanguageButton} /><${ThemeButton} /></div>
    <form class="card" onSubmit=${submit}>
      <div class="mark"><img src="/logo.svg" alt="" /><h1>${t('login.hello')}</h1><p class="muted small">${t('login.what')}</p></div>
      ${byName
        ? html`<${Field} key="name" label=${t('login.name')} hint=${t('login.name.hint')} name="user" autocomplete="username" maxlength="64" autofocus required value=${text} onInput=${(event) => setText(event.target.value)} />`
        : html`<${Field} key="token" label=${t('login.token')} as="textarea" rows="4" name="token" class="input mono" spellcheck=${false} required value=${text} onInput=${(event) => setText(event.target.value)} />
          <div class="stack close small muted"><span>${t('login.token.hint')}</span><pre>pixiu token NAME --data ${dataHint}</pre></div>`}
      ${problem && html`<div class="notice" role="alert">${problem}</div>`}
      <${Button} kind="primary" wide type="submit" busy=${busy}>${t(byName ? 'login.start' : 'login.enter')}<//>
      ${isDev && html`<${Button} kind="quiet" onClick=${other}>${t(byName ? 'login.use.token' : 'login.use.name')}<//>`}
    </form>
  </main>`;
}

function Shell({ client, onLeave }) {
  const route = useRoute();
  const page = NAMES.has(route.page) ? route.page : 'chat';
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const open = () => setOpen(true);
    const escape = (event) => event.key === 'Escape' && setOpen(false);
    window.addEventListener('pixiu-menu', open);
    window.addEventListener('keydown', escape);
    return () => {
      window.removeEventListener('pixiu-menu', open);
      window.removeEventListener('keydown', escape);
    };
  }, []);
  useEffect(() => setOpen(false), [route]);
  useEffect(() => {
    if (!client.mayLookAfter || isCluster) return undefined;
    const timer = setTimeout(() => client.http('/v1/admin/pipeline').catch(() => {}), WARM_MS); // an admin may look at the charts: they are made meanwhile
    return () => clearTimeout(timer);
  }, [client]);
  useEffect(() => {
    if (!NAMES.has(route.page)) go('chat', [], { replace: true });
  }, [route.page]);
  useEffect(() => {
    if (page !== 'chat') document.title = `${t(`nav.${page}`)} · Pixiu`; // the chat has a title of its own, with a count
  });
  return html`<div class="shell">
    <nav class="rail ${isOpen ? 'open' : ''}" aria-label=${t('nav.pages')}>
      <img class="logo" src="/logo.svg" alt="Pixiu" />
      ${PAGES.filter(([name]) => isOpenTo(client, name)).map(([name, icon]) => html`<a key=${name} href=${linkTo(name)} aria-current=${name === page ? 'page' : undefined}><${Icon} name=${icon} size=${22} /><span>${t(`nav.${name}`)}</span></a>
        ${name === 'chat' && client.mayLookAfter && html`<div class="rule" role="presentation" />`}`)}
      <div class="push" />
      <${LanguageButton} named /><${ThemeButton} named />
      <button type="button" class="tool" onClick=${onLeave} aria-label=${`${t('log.out')} (${client.id})`}><${Icon} name="logout" size=${22} /><span>${t('log.out')}</span></button>
    </nav>
    ${isOpen && html`<button type="button" class="shade" aria-label=${t('menu.close')} onClick=${() => setOpen(false)} />`}
    <div class="stage"><${ConnectionBanner} client=${client} onLeave=${onLeave} /><main>${isOpenTo(client, page)
      ? html`<${Opened} key=${page} name=${page} parts=${route.parts} client=${client} />`
      : html`<${PageFrame} title=${t(`nav.${page}`)}><${ErrorBox} error=${{ code: 'forbidden' }} /><//>`}</main></div>
  </div>`;
}

/** Shown while there is no connection: what is the matter, and what to do. */
function ConnectionBanner({ client, onLeave }) {
  const [state, setState] = useState(client.state);
  const [, tick] = useReducer((n) => n + 1, 0);
  const [late, setLate] = useState(false);
  useEffect(() => client.on('state', (next) => setState({ ...next })), [client]);
  useEffect(() => {
    if (state.name !== 'waiting') return undefined;
    const timer = setInterval(tick, 500);
    return () => clearInterval(timer);
  }, [state.name]);
  useEffect(() => {
    setLate(false);
    const timer = setTimeout(() => setLate(true), 700); // a quick connect needs no words
    return () => clearTimeout(timer);
  }, [state.name]);
  const again = html`<${Button} small onClick=${() => client.reconnect()}>${t('state.now')}<//>`;
  if (state.name === 'connecting' && late) return html`<div class="banner" role="status"><span class="spinner" />${t('state.connecting')}</div>`;
  if (state.name === 'waiting') {
    const text = navigator.onLine === false ? t('state.offline') : t('state.waiting', { s: Math.max(0, Math.ceil((state.until - Date.now()) / 1000)) });
    return html`<div class="banner" role="status">${text}${again}</div>`;
  }
  if (state.name !== 'closed') return null;
  if (state.reason === 'new_session') {
    return html`<div class="banner" role="alert">${t('state.elsewhere')}<${Button} small onClick=${() => client.reconnect()}>${t('state.here')}<//></div>`;
  }
  const text = state.reason === 'unauthenticated' ? t('state.unauthenticated') : t('state.kicked', { reason: state.reason });
  return html`<div class="banner bad" role="alert">${text}<${Button} small onClick=${onLeave}>${t('state.again')}<//></div>`;
}

/** A page, loaded when it is first opened. */
function Opened({ name, parts, client }) {
  const [page, setPage] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    import(`/pages/${name}.js`).then((module) => setPage(() => module.default), setError);
  }, [name]);
  // A browser may remember that a part of the page failed to load: begin anew, once the server is there.
  const again = () => fetch('/console.json', { cache: 'no-store' }).then(() => location.reload(), () => {});
  useEffect(() => (error ? client.on('state', (state) => state.name === 'open' && again()) : undefined), [error]);
  if (error) {
    const shown = error instanceof TypeError ? { message: t('page.away') } : error; // what browsers say of a file that did not come
    return html`<div class="page"><div class="inner"><h1>${t('page.failed')}</h1><${ErrorBox} error=${shown} onRetry=${again} /></div></div>`;
  }
  if (!page) return null;
  const Page = page;
  return html`<${Page} client=${client} t=${t} parts=${parts} />`;
}

render(html`<${App} />`, document.getElementById('app'));
