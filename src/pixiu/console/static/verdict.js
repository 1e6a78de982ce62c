/** The result of an audit: green only while it is recent. */
import { ago } from '/format.js';
import { t } from '/i18n.js';
import { Icon, html, useEffect, useReducer } from '/ui.js';

const TICK_MS = 5000;
const DAY_MS = 86_400_000;
const ICONS = { good: 'audit', stale: 'clock', bad: 'alert', open: 'audit' };

/**
 * `state`: good, bad or open (not compared with the stores); `at`: when the audit was finished, null if unknown;
 * `staleMs`: after how long a good one is shown as out of date; `titles`: by state, and for `stale`.
 */
export function Verdict({ state, at, staleMs = DAY_MS, titles, children }) {
  const [, tick] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    const timer = setInterval(tick, TICK_MS);
    return () => clearInterval(timer);
  }, []);
  const age = at ? Math.max(Date.now() - at, 0) : null;
  const shown = state === 'good' && (age === null || age >= staleMs) ? 'stale' : state;
  return html`<section class="verdict ${shown}" role="status"><${Icon} name=${ICONS[shown]} size=${44} /><div><h2>${titles[shown]}</h2>
    ${children}<p class="small">${t('verdict.finished', { when: age === null ? t('ago.unknown') : ago(age) })}</p></div></section>`;
}
