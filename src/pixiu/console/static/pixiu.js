/** The SDK. */
export class PixiuError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export async function request(path, { url = '', method = 'GET', token, query, body } = {}) {
  const search = query ? `?${new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== null))}` : '';
  const headers = body === undefined ? {} : { 'Content-Type': 'application/json' };
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(`${url}${path}${search}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new PixiuError(content.error?.code ?? 'unavailable', content.error?.message ?? `HTTP ${answer.status}`);
  return content;
}

export function connect({ token, user }) {
  return {
    user, state: { name: 'open' }, on: () => () => {}, close() {}, reconnect() {},
    http: (path, options = {}) => request(path, { token, ...options }),
  };
}
