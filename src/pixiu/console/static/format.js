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

/** 3 ms, 1.4 s, 5 min */
export function duration(ms) {
  if (ms < 1000) return `${number(Math.round(ms * 100) / 100)} ms`;
  if (ms < 120_000) return `${number(Math.round(ms / 100) / 10)} s`;
  return `${number(Math.round(ms / 60_000))} min`;
}

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
