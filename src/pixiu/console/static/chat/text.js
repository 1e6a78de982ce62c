/** What is shown of a message in words. Texts of people are shown as they are, never as HTML. */
import { language, t } from '/i18n.js';
import { linkTo } from '/router.js';
import { mediaLine, mediaOf } from '/chat/media.js';
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

const YOU = '\u0001'; // stands for the reader until the sentence is made

/** "You" at the beginning of an English sentence, "you" inside it; Chinese has one word, without spaces around it. */
const withYou = (text) => (language() === 'zh' ? text.replaceAll(/ ?\u0001 ?/g, '你') : text.replace(/^\u0001/, 'You').replaceAll(YOU, 'you'));

/** A notice of the system. */
export function noticeOf(message, chat) {
  const { action = '', user = message.from, group = '' } = message.fields ?? {};
  const named = (id) => (id === chat.me ? YOU : name(id, chat));
  const isToOther = message.group === undefined && message.from === chat.me;
  const key = isToOther ? `notice.${action}.mine` : `notice.${action}`;
  const values = { to: named(message.to ?? ''), who: named(user), by: named(message.from), group: chat.rows.get(`g:${group}`)?.name ?? group };
  const text = t(key, values);
  return withYou(text === key ? t('notice.other', { who: values.by, action: action || message.kind }) : text);
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
  const media = mediaOf(message);
  return media ? mediaLine(media) : message.text ?? t('chat.kind', { kind: message.kind });
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
