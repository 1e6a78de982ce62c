/**
 * Who this window is. Kept in sessionStorage, so that two windows can be two people.
 *
 * A server with `--dev` makes tokens for a name (`POST /v1/dev/token`); others are logged into with a token that was
 * made elsewhere. Operator pages use an admin's token: the own one if it is that, else, with `--dev`, one made for them.
 */
import { connect, request } from '/pixiu.js';

const KEPT_AS = 'pixiu.session';
const facts = await fetch('/console.json').then((answer) => answer.json()).catch(() => ({ dev: false, version: '', node: '', cluster: false }));

/** Was the server started with `--dev`? Then a name is enough. */
export const isDev = facts.dev;
export const version = facts.version;
/** Is it a gateway of a cluster? Then the numbers are those of the shard's leader, and it has no pipeline. */
export const isCluster = facts.cluster === true;
/** The data directory that `pixiu token` needs on the server. */
export const dataHint = isCluster ? 'pixiu-cluster/nodes/gateway' : 'DIR';

/** What a token claims; the server alone decides whether it is true. */
export function claimsOf(token) {
  try {
    const bytes = Uint8Array.from(atob(token.split('.')[1].replace(/-/g, '+').replace(/_/g, '/')), (each) => each.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return {};
  }
}

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT_AS));
  } catch {
    return null;
  }
}

function keep(session) {
  if (session) sessionStorage.setItem(KEPT_AS, JSON.stringify(session));
  else sessionStorage.removeItem(KEPT_AS);
}

const makeToken = async (user, more = {}) => (await request('/v1/dev/token', { method: 'POST', body: { user, platform: 'web', ...more } })).token;

/** A client for the person of this window, or null if nobody has logged in. */
export function resume() {
  const session = kept();
  return session ? open(session) : null;
}

/** Logs in by name; for `--dev` only. */
export async function logInAs(user) {
  const device = `web-${crypto.randomUUID().slice(0, 8)}`;
  const session = { user, device, token: await makeToken(user, { device }), byName: true };
  keep(session);
  return open(session);
}

/** Logs in with a token. */
export async function logInWith(token) {
  const claims = claimsOf(token);
  await request('/v1/contacts', { token });
  const session = { user: String(claims.sub ?? ''), device: String(claims.device ?? ''), token, byName: false };
  keep(session);
  return open(session);
}

/** Forgets who this window is. */
export function logOut(client) {
  keep(null);
  client.close();
}

function open(session) {
  let token = session.token;
  let adminToken = claimsOf(token).admin ? token : null;
  const refresh = session.byName && isDev
    ? async () => {
        token = await makeToken(session.user, { device: session.device });
        keep({ ...session, token });
        return token;
      }
    : null;
  const client = connect({ url: location.origin, token, user: session.user, refreshToken: refresh, store: 'indexeddb', storeName: `pixiu ${facts.node} ${session.user}` });
  /** Is there an admin's token, or can one be made? The server alone decides. */
  client.mayLookAfter = adminToken !== null || isDev;
  const asUser = client.http.bind(client);
  client.http = async (path, options = {}) => {
    if (!path.startsWith('/v1/admin') && !path.startsWith('/v1/push')) return asUser(path, options);
    if (!adminToken && isDev) adminToken = await makeToken(session.user, { admin: true });
    return asUser(path, adminToken ? { ...options, token: adminToken } : options);
  };
  return client;
}
