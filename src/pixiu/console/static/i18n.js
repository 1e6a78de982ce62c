/**
 * Two languages. A page brings its own words:
 *
 *     import { addWords } from '/i18n.js';
 *     addWords({ en: { 'topics.none': 'No topics yet' }, zh: { 'topics.none': '还没有主题' } });
 *
 * and shows them with `t('topics.none')`. `{name}` in a text stands for a value: `t('x.hello', { name: 'Bob' })`.
 * A text with a count may have two forms, `one|many`, picked by the value `n`.
 */

const KEPT_AS = 'pixiu.language';
export const LANGUAGES = { en: 'English', zh: '中文' };
const words = { en: {}, zh: {} };
const listeners = new Set();

function preferred() {
  const kept = localStorage.getItem(KEPT_AS);
  if (kept in words) return kept;
  return (navigator.language || 'en').toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

let current = preferred();

/** Adds texts by key, for both languages. */
export function addWords(more) {
  for (const language of Object.keys(words)) Object.assign(words[language], more[language]);
}

/** The language of now: 'en' or 'zh'. */
export function language() {
  return current;
}

/** The tag for Intl and for `lang`. */
export function locale() {
  return current === 'zh' ? 'zh-CN' : 'en';
}

/** Switches, remembers, and tells whoever shows texts. */
export function setLanguage(next) {
  current = next in words ? next : 'en';
  localStorage.setItem(KEPT_AS, current);
  document.documentElement.lang = locale();
  for (const listener of listeners) listener(current);
}

/** Calls back on every switch; returns how to stop that. */
export function whenLanguageChanges(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The text of a key. A key without a text shows itself, so that it is noticed. */
export function t(key, values = {}) {
  let text = words[current][key] ?? words.en[key] ?? key;
  if ('n' in values && text.includes('|')) {
    const forms = text.split('|');
    text = Number(values.n) === 1 ? forms[0] : forms[1];
  }
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** Why something was refused, in the reader's language: what kind of refusal it is, and the server's own words, which are English. */
export function why(error) {
  const key = `refused.${error.code}`;
  if (current === 'en' || !(key in words[current])) return error.message;
  return t('refused.with', { what: t(key), message: error.message });
}

/** Keys that one language has and the other lacks. For the tests. */
export function untranslated() {
  const keys = new Set([...Object.keys(words.en), ...Object.keys(words.zh)]);
  return [...keys].filter((key) => !(key in words.en) || !(key in words.zh));
}

document.documentElement.lang = locale();
