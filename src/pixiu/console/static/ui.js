/**
 * What pages are built of: Preact with htm, and the parts in styles/parts.css as components.
 *
 *     import { html, useState, PageFrame, Card, Table, Button, useLoad } from '/ui.js';
 */
import { Fragment, h, render } from 'preact';
import { useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from 'preact/hooks';
import htm from 'htm';
import { t, why } from '/i18n.js';
import { ICONS } from '/icons.js';
import { dataHint, isCluster } from '/session.js';

export { Fragment, h, render, useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState };
export const html = htm.bind(h);

/** A line drawing by its name. Decoration: whatever it stands for is said beside it, or in an aria-label. */
export function Icon({ name, size = 20 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 24 24" aria-hidden="true"><path d=${ICONS[name] ?? ICONS.info} /></svg>`;
}

/** A button. `kind`: primary, danger, quiet, or nothing; with an icon and no text it is round and needs a `label`. */
export function Button({ kind = '', icon, label, small, wide, busy, class: more = '', children, ...rest }) {
  const round = icon && !children ? 'round' : '';
  return html`<button type="button" class="button ${kind} ${round} ${small ? 'small' : ''} ${wide ? 'wide' : ''} ${more}"
    aria-label=${label} title=${round ? label : undefined} aria-busy=${busy ? 'true' : undefined} ...${rest} disabled=${rest.disabled || busy}>
    ${busy ? html`<span class="spinner" />` : icon && html`<${Icon} name=${icon} size=${small ? 16 : 18} />`}${children}
  </button>`;
}

/** A labelled input. `as`: input, textarea or select. */
export function Field({ label, hint, as = 'input', children, ...rest }) {
  return html`<label class="field"><span>${label}</span><${as} class="input" ...${rest}>${children}<//>${hint && html`<small>${hint}</small>`}</label>`;
}

/** A hue of its own for every id. */
export function hueOf(id) {
  let hash = 2166136261;
  for (const character of id) hash = Math.imul(hash ^ character.codePointAt(0), 16777619);
  return Math.round(((hash >>> 0) % 1009) * 137.508) % 360;
}

/** A coloured disc with the first letters of a name; square for groups and rooms. `state`: online, offline or nothing. */
export function Avatar({ id, name = '', size = '', square = false, icon, state }) {
  const shown = (name || id).trim();
  const parts = shown.split(/[\s_.-]+/).filter(Boolean);
  const letters = /^[\u0000-\u024f]/.test(shown) && parts.length > 1 ? [...parts[0]][0] + [...parts[1]][0] : [...shown][0] ?? '?';
  const hue = hueOf(id);
  const colour = `linear-gradient(145deg, hsl(${hue} var(--avatar-s) calc(var(--avatar-l) + 6%)), hsl(${(hue + 24) % 360} var(--avatar-s) calc(var(--avatar-l) - 5%)))`;
  return html`<span class="avatar ${size} ${square ? 'square' : ''}" style=${{ background: colour }} aria-hidden="true">
    ${icon ? html`<${Icon} name=${icon} size=${size === 's' ? 15 : 20} />` : letters.toUpperCase()}
    ${state && html`<span class="dot ${state}" />`}
  </span>`;
}

/** A small coloured word. `tone`: good, bad, gold, accent, or nothing. */
export const Badge = ({ tone = '', children }) => html`<span class="badge ${tone}">${children}</span>`;

/** A number that matters, in a `<dl class="grid">`. */
export const Stat = ({ label, value, hint, tone = '' }) =>
  html`<div class="stat ${tone}"><dt>${label}</dt><dd>${value}</dd>${hint && html`<small>${hint}</small>`}</div>`;

/** Something that says why there is nothing, and what to do. */
export const Empty = ({ icon = 'info', title, text, children }) =>
  html`<div class="empty"><${Icon} name=${icon} size=${40} /><h2>${title}</h2>${text && html`<p>${text}</p>`}${children}</div>`;

/** A framed part of a page. `flush`: the content reaches the frame, as tables do. */
export const Card = ({ title, actions, flush, class: more = '', children }) => html`<section class="card ${flush ? 'flush' : ''} ${more}">
  ${(title || actions) && html`<header>${title ? html`<h2>${title}</h2>` : html`<span class="grow" />`}${actions}</header>`}${children}
</section>`;

/** A page with its heading; `actions` stand at its right. Opens the menu on a phone. */
export const PageFrame = ({ title, text, actions, children }) => html`<div class="page"><div class="inner">
  <header class="page-head">
    <${MenuButton} /><div><h1>${title}</h1>${text && html`<p>${text}</p>`}</div>${actions && html`<div class="row wrap">${actions}</div>`}
  </header>${children}
</div></div>`;

/** On a phone, opens the list of pages. */
export const MenuButton = () =>
  html`<${Button} kind="quiet" icon="menu" class="menu-button" label=${t('menu.open')} onClick=${() => window.dispatchEvent(new Event('pixiu-menu'))} />`;

/**
 * A table. Columns are `{ key, title, right?, show?(row) }`; `empty` is shown without rows; `onPick(row)` makes rows
 * choosable by mouse and keyboard.
 */
export function Table({ columns, rows, keyOf = (row, index) => index, empty, onPick, label }) {
  if (!rows.length && empty) return empty;
  const pick = (row) => onPick && {
    class: 'pickable', tabIndex: 0, onClick: () => onPick(row),
    onKeyDown: (event) => event.key === 'Enter' && event.target === event.currentTarget && onPick(row),
  };
  return html`<div class="scroller" tabindex=${onPick ? undefined : 0} role="region" aria-label=${label}><table class="table">
    <thead><tr>${columns.map((each) => html`<th scope="col" class=${each.right ? 'right' : ''}>${each.title}</th>`)}</tr></thead>
    <tbody>${rows.map((row, index) => html`<tr key=${keyOf(row, index)} ...${pick(row)}>
      ${columns.map((each) => html`<td class=${each.right ? 'right' : ''}>${each.show ? each.show(row) : row[each.key]}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** A choice of few: `options` are `[value, text]` pairs. */
export const Tabs = ({ value, options, onChange, label }) => html`<div class="tabs" role="tablist" aria-label=${label}>
  ${options.map(([each, text]) => html`<button key=${each} type="button" role="tab" aria-selected=${String(each === value)} onClick=${() => onChange(each)}>${text}</button>`)}
</div>`;

/** A dialog over the page. Esc and the cross close it; the focus stays inside. Put `.actions` last in it. */
export function Dialog({ title, onClose, children }) {
  const ref = useRef(null);
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog.showModal();
    dialog.querySelector('[autofocus]')?.focus();
    return () => {
      dialog.close();
      before?.focus?.();
    };
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${ref} class="dialog" aria-label=${title} onCancel=${onCancel} onKeyDown=${(event) => event.stopPropagation()}
    onMouseDown=${(event) => event.target === ref.current && onClose()}>
    <header><h2 class="cut">${title}</h2><${Button} kind="quiet" icon="close" label=${t('close')} onClick=${onClose} /></header>
    <div class="content">${children}</div>
  </dialog>`;
}

/** Asks before something that cannot be undone. `go` names the action; `onGo` does it, and its error is shown here. */
export function Confirm({ title, text, go, onGo, onClose, children }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await onGo();
    } catch (problem) {
      setError(problem);
      setBusy(false);
      return;
    }
    onClose();
  };
  return html`<${Dialog} title=${title} onClose=${onClose}><form class="stack" onSubmit=${submit}>
    ${text && html`<p>${text}</p>`}${children}
    ${error && html`<div class="notice" role="alert">${why(error)}</div>`}
    <div class="actions"><${Button} autofocus onClick=${onClose}>${t('cancel')}<//><${Button} kind="danger" type="submit" busy=${busy}>${go}<//></div>
  </form><//>`;
}

const toasts = { shown: [], listener: null, next: 1 };
const TOASTS_MAX = 3;

/** Says something in passing. `tone`: bad, or nothing. At most three are shown; the oldest goes. */
export function toast(text, tone = '') {
  const each = { id: toasts.next++, text, tone };
  toasts.shown = [...toasts.shown, each].slice(-TOASTS_MAX);
  toasts.listener?.();
  setTimeout(() => {
    toasts.shown = toasts.shown.filter((other) => other !== each);
    toasts.listener?.();
  }, 4500);
}

/** Where toasts appear; the shell has it. */
export function Toasts() {
  const [, again] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    toasts.listener = () => again();
    return () => (toasts.listener = null);
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">${toasts.shown.map((each) => html`<div key=${each.id} class="toast ${each.tone}">${each.text}</div>`)}</div>`;
}

/** Does a gateway of a cluster refuse this for good? Then another try does not help. */
export const isElsewhere = (error) => isCluster && error?.code === 'not_found' && error.message.includes('not available in a cluster');

/** What a gateway of a cluster does not have: the command to use instead, and the map, if one runs. */
export function Elsewhere({ map, text, command }) {
  return html`<${Card}><${Empty} icon="cluster" title=${t('elsewhere.title')} text=${text}>
    ${command && html`<pre class="mono">${command}</pre>`}
    ${map && html`<a class="button primary" href=${map} target="_blank" rel="noopener noreferrer"><${Icon} name="cluster" size=${18} />${t('elsewhere.map')}</a>`}
  <//><//>`;
}

/** What went wrong, with a way to try again. An admin's page shows to others what they lack. */
export function ErrorBox({ error, onRetry }) {
  if (error.code === 'forbidden' || error.code === 'unauthenticated') {
    return html`<${Empty} icon="lock" title=${t('admin.needed')} text=${t('admin.how')}><pre class="mono">pixiu token NAME --admin --data ${dataHint}</pre><//>`;
  }
  return html`<div class="notice" role="alert"><${Icon} name="alert" /><span class="grow">${why(error)}</span>
    ${onRetry && html`<${Button} small onClick=${onRetry}>${t('retry')}<//>`}</div>`;
}

/**
 * Loads, and loads again: `const { data, error, busy, reload } = useLoad(() => client.http('/v1/admin/topics'), [], 5000)`.
 * With `everyMs` it repeats while the page is visible. What was loaded stays until the next is there.
 */
export function useLoad(load, needs = [], everyMs = 0) {
  const [state, setState] = useState({ data: null, error: null, busy: true });
  const [again, reload] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    let alive = true;
    let timer = 0;
    const run = async () => {
      if (document.hidden && everyMs) {
        timer = setTimeout(run, everyMs);
        return;
      }
      setState((before) => ({ ...before, busy: true }));
      try {
        const data = await load();
        if (alive) setState({ data, error: null, busy: false });
      } catch (error) {
        if (alive) setState((before) => ({ data: before.data, error, busy: false }));
        if (isElsewhere(error)) return;
      }
      if (alive && everyMs) timer = setTimeout(run, everyMs);
    };
    run();
    return () => {
      alive = false;
      clearTimeout(timer);
    };
  }, [...needs, again]);
  return { ...state, reload };
}

/** The three states of something that loads: an error, a wait, or `children(data)`. `elsewhere(error)`: what a cluster's gateway says instead. */
export function Loaded({ of: state, elsewhere, children }) {
  if (state.data === null && elsewhere && isElsewhere(state.error)) return elsewhere(state.error);
  if (state.data === null && state.error) return html`<${ErrorBox} error=${state.error} onRetry=${state.reload} />`;
  if (state.data === null) return html`<div class="empty"><span class="spinner" role="status" aria-label=${t('loading')} /></div>`;
  return html`${state.error && html`<${ErrorBox} error=${state.error} onRetry=${state.reload} />`}${children(state.data)}`;
}
