/** Addresses are in the hash: `#/chat/u/bob` is the page `chat` with the parts `['u', 'bob']`. */
import { useEffect, useState } from 'preact/hooks';

function parse() {
  const [page = '', ...parts] = location.hash.replace(/^#\/?/, '').split('/');
  return { page: page || 'chat', parts: parts.map(decoded) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The hash of a page and its parts. */
export const linkTo = (page, ...parts) => `#/${[page, ...parts.map(encodeURIComponent)].join('/')}`;

/** Goes there; `replace` leaves no trace in the browser's history. */
export function go(page, parts = [], { replace = false } = {}) {
  const link = linkTo(page, ...parts);
  if (link === location.hash) return;
  if (replace) {
    history.replaceState(null, '', link);
    window.dispatchEvent(new HashChangeEvent('hashchange'));
  } else {
    location.hash = link;
  }
}

/** `{ page, parts }` of now. */
export function useRoute() {
  const rendered = location.hash;
  const [route, setRoute] = useState(parse);
  useEffect(() => {
    const changed = () => setRoute(parse());
    window.addEventListener('hashchange', changed);
    if (location.hash !== rendered) changed(); // between rendering and listening
    return () => window.removeEventListener('hashchange', changed);
  }, []);
  return route;
}
