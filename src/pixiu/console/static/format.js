/** Numbers and times, in the language of now. */
import { locale, t } from '/i18n.js';

const cache = new Map();

function formatter(kind, options) {
  const key = `${locale()} ${kind} ${JSON.stringify(options)}`;
  if (!cache.has(key)) cache.set(key, new Intl[kind](locale(), options));
  return cache.get(key);
}

/** 12,345 */
export const number = (value) => formatter('NumberFormat', { maximumFractionDigits: 2 }).format(value);

/** 12K */
export const short = (value) => formatter('NumberFormat', { notation: 'compact', maximumFractionDigits: 1 }).format(value);

/** 14:05 */
export const clock = (ms) => formatter('DateTimeFormat', { hour: '2-digit', minute: '2-digit', hour12: false }).format(ms);

/** 15 Nov 2026, 14:05:07 */
export const moment = (ms) => formatter('DateTimeFormat', { dateStyle: 'medium', timeStyle: 'medium', hour12: false }).format(ms);

/** 1.2 MB */
export function bytes(value) {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let step = 0;
  while (value >= 1024 && step < units.length - 1) {
    value /= 1024;
    step += 1;
  }
  return `${formatter('NumberFormat', { maximumFractionDigits: step ? 1 : 0 }).format(value)} ${units[step]}`;
}

/** Two units, of which the smaller is left out where it is nothing. */
function pair(large, small, each, names) {
  const left = Math.floor(small - Math.floor(large) * each);
  const text = t(`unit.${names[0]}`, { n: number(Math.floor(large)) });
  return left > 0 ? `${text} ${t(`unit.${names[1]}`, { n: number(left) })}` : text;
}

/** 3 ms, 1.4 s, 5 min, 3 h 20 min, 4 d 6 h */
export function duration(ms) {
  const [minutes, hours] = [ms / 60_000, ms / 3_600_000];
  if (ms < 1000) return t('unit.ms', { n: number(Math.round(ms * 100) / 100) });
  if (ms < 120_000) return t('unit.s', { n: number(Math.round(ms / 100) / 10) });
  if (hours < 2) return t('unit.min', { n: number(Math.round(minutes)) });
  return hours < 48 ? pair(hours, minutes, 60, ['h', 'min']) : pair(hours / 24, hours, 24, ['d', 'h']);
}

/** just now, 40 s ago, 5 min ago */
export const ago = (ms) => (ms < 10_000 ? t('ago.now') : t('ago', { time: duration(ms < 120_000 ? Math.round(ms / 1000) * 1000 : ms) }));

const midnight = (ms) => new Date(ms).setHours(0, 0, 0, 0);

/** Today, Yesterday, Monday, 3 March 2026 */
export function day(ms, now = Date.now()) {
  const days = Math.round((midnight(now) - midnight(ms)) / 86_400_000);
  if (days === 0) return t('day.today');
  if (days === 1) return t('day.yesterday');
  if (days > 1 && days < 7) return formatter('DateTimeFormat', { weekday: 'long' }).format(ms);
  return formatter('DateTimeFormat', { dateStyle: 'long' }).format(ms);
}

/** For a list: 14:05 today, else the day in short. */
export function when(ms, now = Date.now()) {
  const days = Math.round((midnight(now) - midnight(ms)) / 86_400_000);
  if (days === 0) return clock(ms);
  if (days === 1) return t('day.yesterday');
  if (days > 1 && days < 7) return formatter('DateTimeFormat', { weekday: 'short' }).format(ms);
  return formatter('DateTimeFormat', { month: 'short', day: 'numeric' }).format(ms);
}

/** Do two times fall on one day? */
export const sameDay = (a, b) => midnight(a) === midnight(b);
