/** What is shown of a message in words. Texts of people are shown as they are, never as HTML. */
import { t } from '/i18n.js';
import { linkTo } from '/router.js';
import { isNotice } from '/chat/model.js';

const name = (user, chat) => (user === chat.me ? t('chat.you') : chat.rows.get(`u:${user}`)?.name ?? user);

/** A person's name, or "You". */
export const nameOf = name;

/** The address of a conversation. */
export const linkToRow = (key) => linkTo('chat', key[0], key.slice(2));

/** The address of a message in its conversation. */
export function linkToMessage(message, me) {
  const [kind, id] = message.group !== undefined ? ['g', message.group] : ['u', message.from === me ? message.to : message.from];
  return linkTo('chat', kind, id, 'at', message.message_id);
}

/** A notice of the system. */
export function noticeOf(message, chat) {
  const { action = '', user = message.from } = message.fields ?? {};
  const isToOther = message.group === undefined && message.from === chat.me;
  const key = isToOther ? `notice.${action}.mine` : `notice.${action}`;
  const text = t(key, { to: name(message.to ?? '', chat), who: name(user, chat), by: name(message.from, chat), action });
  return text === key ? t('notice.other', { who: name(message.from, chat), action: action || message.kind }) : text;
}

/** The last line of a conversation. */
export function lineOf(row, chat) {
  const message = row.last;
  if (!message) return row.place.room !== undefined && row.members !== null ? t('chat.listeners', { n: row.members }) : row.id === chat.me ? t('chat.note') : t('chat.empty');
  if (message.recalled) return message.from === chat.me ? t('chat.recalled.mine') : t('chat.recalled', { who: name(message.from, chat) });
  if (isNotice(message)) return noticeOf(message, chat);
  const text = bodyOf(message);
  if (message.from === chat.me) return `${t('chat.you')}: ${text}`;
  return row.place.with === undefined ? `${name(message.from, chat)}: ${text}` : text;
}

/** What a message says. */
export function bodyOf(message) {
  if (message.missing) return t('chat.gone');
  return message.text ?? t('chat.kind', { kind: message.kind });
}

const LINK = /\bhttps?:\/\/[^\s<>"']+[^\s<>"'.,;:!?)\]}，。；：！？）】]/g;

/** A text in pieces: strings, and `{ link }` for addresses in it. */
export function piecesOf(text) {
  const pieces = [];
  let from = 0;
  for (const match of text.matchAll(LINK)) {
    pieces.push(text.slice(from, match.index), { link: match[0] });
    from = match.index + match[0].length;
  }
  pieces.push(text.slice(from));
  return pieces;
}
