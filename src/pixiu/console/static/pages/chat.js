/** The chat: a list of conversations, and the one that is open. */
import '/chat/words.js';
import { why } from '/i18n.js';
import { go } from '/router.js';
import { Empty, html, toast, useEffect, useReducer, useState } from '/ui.js';
import { Chat } from '/chat/model.js';
import { ConversationList } from '/chat/list.js';
import { SearchPage } from '/chat/search.js';
import { Thread } from '/chat/thread.js';
import { DetailsDialog, LaterDialog, NewDialog } from '/chat/dialogs.js';

const KINDS = new Set(['u', 'g', 'r']);

export default function Page({ client, t, parts }) {
  const [, again] = useReducer((n) => n + 1, 0);
  const [chat, setChat] = useState(null);
  const [dialog, setDialog] = useState(null);
  const [kind, ...rest] = parts;
  const isAt = rest.length > 2 && rest[rest.length - 2] === 'at' && /^\d+$/.test(rest[rest.length - 1]);
  const at = isAt ? rest[rest.length - 1] : null;
  const id = (isAt ? rest.slice(0, -2) : rest).join('/');
  const isSearch = kind === 'search';
  const current = KINDS.has(kind) && id ? `${kind}:${id}` : null;

  useEffect(() => {
    const made = new Chat(client);
    made.whenChanged(again);
    setChat(made);
    return () => made.close();
  }, [client]);
  useEffect(() => {
    chat?.open(current, at).catch((error) => toast(error.code === 'not_found' ? t('chat.gone') : why(error), 'bad'));
    setDialog(null);
  }, [chat, current, at]);
  const unread = chat?.unread() ?? 0;
  useEffect(() => {
    document.title = `${unread ? `(${unread}) ` : ''}${client.id} · Pixiu`;
  }, [unread]);
  if (!chat) return null;

  const open = (key) => {
    setDialog(null);
    go('chat', [key[0], key.slice(2)]);
  };
  const back = () => {
    go('chat', []);
    requestAnimationFrame(() => document.querySelector(`.list a[data-key="${CSS.escape(current ?? '')}"]`)?.focus());
  };
  const { thread } = chat;
  return html`<div class="chat ${current || isSearch ? 'has-thread' : ''}">
    <${ConversationList} chat=${chat} current=${current} onNew=${() => setDialog({ kind: 'new' })} />
    ${thread && thread.key === current
      ? html`<${Thread} chat=${chat} thread=${thread} onBack=${back} onDetails=${() => setDialog({ kind: 'details' })} onLater=${(text, onScheduled) => setDialog({ kind: 'later', text, onScheduled })} />`
      : isSearch ? html`<${SearchPage} chat=${chat} query=${id} onBack=${back} />`
      : html`<section class="thread vacant"><${Empty} icon="chat" title=${t('chat.pick')} text=${t('chat.pick.how')} /></section>`}
    ${dialog?.kind === 'new' && html`<${NewDialog} chat=${chat} onOpen=${open} onClose=${() => setDialog(null)} />`}
    ${dialog?.kind === 'details' && thread && html`<${DetailsDialog} chat=${chat} thread=${thread} onClose=${() => setDialog(null)} onGone=${() => { setDialog(null); back(); }} />`}
    ${dialog?.kind === 'later' && thread && html`<${LaterDialog} chat=${chat} thread=${thread} text=${dialog.text} onScheduled=${dialog.onScheduled} onClose=${() => setDialog(null)} />`}
  </div>`;
}
