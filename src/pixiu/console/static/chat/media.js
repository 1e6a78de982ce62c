/**
 * Messages of kind image, voice, video and file. Their body is the address of the content, or a small image itself.
 *
 * The sender chooses the address, so it is not trusted: only http and https without a password are links, the browser
 * sends no referrer and no opener, and an image of another site loads only when the reader asks for it, so that opening
 * a message tells its sender nothing.
 */
import { bytes } from '/format.js';
import { t } from '/i18n.js';
import { Icon, html, useState } from '/ui.js';

const KINDS = new Set(['image', 'voice', 'video', 'file']);
const URL_CHARS_MAX = 4096;
const NAME_CHARS_MAX = 120;
const INLINE = [['iVBORw0KGgo', 'image/png'], ['/9j/', 'image/jpeg'], ['R0lGOD', 'image/gif'], ['UklGR', 'image/webp']];
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g; // control and direction characters: they can disguise a name

const cleaned = (name) => [...name.replace(UNSEEN, '').trim()].slice(0, NAME_CHARS_MAX).join('');

function addressOf(body) {
  if (!body || body.length > URL_CHARS_MAX * 2) return null;
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(Uint8Array.from(atob(body), (each) => each.charCodeAt(0)));
    const url = new URL(text.trim());
    return /^https?:$/.test(url.protocol) && url.host && !url.username && !url.password && url.href.length <= URL_CHARS_MAX ? url : null;
  } catch {
    return null;
  }
}

function lastPart(url) {
  const part = url?.pathname.split('/').filter(Boolean).pop() ?? '';
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** `{ kind, url, src, name, size }` of such a message: `src` is an image inside the message itself. null: another kind. */
export function mediaOf(message) {
  if (!KINDS.has(message.kind) || message.text !== undefined) return null;
  const { kind, body, fields = {}, enc } = message;
  const type = !enc && kind === 'image' && INLINE.find(([start]) => body?.startsWith(start))?.[1];
  const url = enc || type ? null : addressOf(body);
  const size = Number(fields.size);
  return { kind, url, src: type ? `data:${type};base64,${body}` : null, name: cleaned(fields.name ?? '') || cleaned(lastPart(url)), size: Number.isSafeInteger(size) && size > 0 ? size : 0 };
}

/** One line about it: `File: report.pdf`. */
export function mediaLine({ kind, name }) {
  const what = t(`media.${kind}`);
  return name ? t('media.named', { what, name }) : what;
}

const Link = ({ url, children, ...rest }) => html`<a href=${url.href} target="_blank" rel="noopener noreferrer" referrerpolicy="no-referrer" ...${rest}>${children}</a>`;

const Attached = ({ media, icon }) => html`<span class="attached"><${Icon} name=${icon} size=${22} />
  <span class="grow"><span class="cut">${media.name || t(`media.${media.kind}`)}</span><small>${[media.size && bytes(media.size), media.url?.host].filter(Boolean).join(' · ')}</small></span></span>`;

function Picture({ media }) {
  const isOwn = media.src !== null || media.url.origin === location.origin;
  const [isShown, setShown] = useState(isOwn);
  const [isBroken, setBroken] = useState(false);
  if (isBroken) return html`<${Link} url=${media.url} class="media"><${Attached} media=${media} icon="image" /><//>`;
  if (!isShown) {
    return html`<button type="button" class="media unloaded" onClick=${() => setShown(true)}><${Icon} name="image" size=${28} /><span>${t('media.show', { host: media.url.hostname })}</span></button>`;
  }
  const image = html`<img class="picture" src=${media.src ?? media.url.href} alt=${mediaLine(media)} referrerpolicy="no-referrer" decoding="async" onError=${() => media.url && setBroken(true)} />`;
  return media.url ? html`<${Link} url=${media.url} class="media">${image}<//>` : html`<span class="media">${image}</span>`;
}

/** The content of a bubble. */
export function Media({ media }) {
  if (media.kind === 'image' && (media.src || media.url)) return html`<${Picture} media=${media} />`;
  const icon = { image: 'image', voice: 'voice', video: 'video', file: 'file' }[media.kind];
  const shown = html`<${Attached} media=${media} icon=${icon} />`;
  return media.url ? html`<${Link} url=${media.url} class="media">${shown}<//>` : html`<span class="media">${shown}</span>`;
}
