/** Light or dark: what the system says, until a person chooses. */
const KEPT_AS = 'pixiu.theme';
const system = matchMedia('(prefers-color-scheme: dark)');
const listeners = new Set();

/** 'light' or 'dark'. */
export function theme() {
  const kept = localStorage.getItem(KEPT_AS);
  return kept === 'light' || kept === 'dark' ? kept : system.matches ? 'dark' : 'light';
}

function apply() {
  document.documentElement.dataset.theme = theme();
  document.querySelector('meta[name="theme-color"]').content = theme() === 'dark' ? '#0f1312' : '#f4f5f3';
  for (const listener of listeners) listener(theme());
}

/** Chooses, and remembers. */
export function setTheme(next) {
  localStorage.setItem(KEPT_AS, next);
  apply();
}

/** Calls back on every change; returns how to stop that. Charts draw again then. */
export function whenThemeChanges(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

system.addEventListener('change', apply);
apply();
