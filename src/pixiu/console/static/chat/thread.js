/** One conversation: what was said, and the place to say more. */
import { t, why } from '/i18n.js';
import { clock, day, sameDay } from '/format.js';
import { Avatar, Button, Confirm, Empty, ErrorBox, Icon, html, toast, useEffect, useLayoutEffect, useRef, useState } from '/ui.js';
import { Face } from '/chat/list.js';
import { Media, mediaOf } from '/chat/media.js';
import { isNotice } from '/chat/model.js';
import { bodyOf, nameOf, noticeOf, piecesOf } from '/chat/text.js';

const RUN_MS = 5 * 60_000; // what one says within this time stands together
const NEAR_PX = 80;

export function Thread({ chat, thread, onBack, onDetails, onLater }) {
  const [reply, setReply] = useState(null);
  const box = useRef(null);
  useEffect(() => setReply(null), [thread.key]);
  const answer = (message) => {
    setReply(message);
    box.current?.focus();
  };
  const keys = (event) => {
    if (event.key !== 'Escape' || event.defaultPrevented) return;
    if (reply) setReply(null);
    else onBack();
  };
  return html`<section class="thread" aria-label=${thread.row.name} onKeyDown=${keys}>
    <${Head} chat=${chat} thread=${thread} onBack=${onBack} onDetails=${onDetails} />
    <${Messages} key=${thread.key} onBack=${onBack} chat=${chat} thread=${thread} onReply=${answer} onDone=${() => box.current?.focus()} />
    ${thread.key !== 'u:0' && !thread.isMissing && html`<${Composer} key=${`write ${thread.key}`} chat=${chat} thread=${thread} box=${box} reply=${reply} onReplied=${() => setReply(null)} onLater=${onLater} />`}
  </section>`;
}

function statusOf(row, chat) {
  const typing = [...row.typing.keys()];
  if (typing.length) return row.place.group !== undefined ? t('chat.types', { who: nameOf(typing[0], chat) }) : t('chat.typing');
  if (row.id === chat.me && row.place.with !== undefined) return t('chat.note');
  if (row.place.room !== undefined) return row.members === null ? '' : t('chat.listeners', { n: row.members });
  if (row.place.group !== undefined) return row.members === null ? '' : t('chat.members', { n: row.members });
  return row.state ? t(`chat.${row.state}`) : '';
}

function Head({ chat, thread, onBack, onDetails }) {
  const { row } = thread;
  const status = statusOf(row, chat);
  return html`<header class="head">
    <${Button} kind="quiet" icon="back" class="back" label=${t('chat.back')} onClick=${onBack} />
    <button type="button" class="who" disabled=${thread.isMissing} onClick=${onDetails} aria-label=${`${row.name}, ${t('chat.details')}`}>
      <${Face} row=${row} />
      <span class="name cut">${row.name}</span>
      <span class="status cut ${row.typing.size ? 'typing' : ''}" aria-live="polite">${status}</span>
    </button>
    ${!thread.isMissing && html`<${Button} kind="quiet" icon="more" label=${t('chat.details')} onClick=${onDetails} />`}
  </header>`;
}

/** Messages, gaps, days and what is on its way, in one list from old to new. */
function itemsOf(chat, thread) {
  const items = [];
  const gaps = new Map(thread.gaps.map((gap) => [gap.before, gap]));
  let before = null;
  for (const message of thread.messages) {
    const gap = gaps.get(message.message_id);
    if (gap) items.push({ kind: 'gap', key: `gap ${gap.before}`, gap, isFirst: before === null });
    if (message.kind === 'delete') continue;
    if (!before || !sameDay(before.at, message.at)) items.push({ kind: 'day', key: `day ${message.message_id}`, at: message.at });
    if (message.message_id === thread.firstUnread) items.push({ kind: 'new', key: 'new' });
    const previous = items[items.length - 1];
    const isRun = previous?.kind === 'message' && !isNotice(previous.message) && !isNotice(message) && !message.recalled && !previous.message.recalled
      && previous.message.from === message.from && message.at - previous.message.at < RUN_MS;
    if (isRun) previous.isLast = false;
    items.push({ kind: 'message', key: message.message_id, message, isFirst: !isRun, isLast: true });
    before = message;
  }
  for (const each of chat.pending.get(thread.key) ?? []) items.push({ kind: 'pending', key: each.send_id, each });
  return items;
}

function Messages({ chat, thread, onReply, onDone, onBack }) {
  const scroller = useRef(null);
  const place = useRef({ isAtEnd: true, anchor: null });
  const [missed, setMissed] = useState(0);
  const [isAway, setAway] = useState(false);
  const items = itemsOf(chat, thread);
  const hasFirstGap = items[0]?.kind === 'gap';
  const isWhole = !hasFirstGap && !thread.hasOlder && !thread.isLoading && thread.row.place.room === undefined;

  // Where one reads stays where it is, whatever is added above; who is at the end stays there.
  useLayoutEffect(() => {
    const pane = scroller.current;
    const wanted = thread.target && pane.querySelector(`[data-id="${thread.target}"]`);
    if (wanted) {
      thread.target = null;
      wanted.scrollIntoView({ block: 'center' });
      place.current = { isAtEnd: false, anchor: { id: wanted.dataset.id, top: wanted.getBoundingClientRect().top - pane.getBoundingClientRect().top } };
      return;
    }
    const { isAtEnd, anchor } = place.current;
    if (isAtEnd) pane.scrollTop = pane.scrollHeight;
    else if (anchor) {
      const element = pane.querySelector(`[data-id="${anchor.id}"]`);
      if (element) pane.scrollTop += element.getBoundingClientRect().top - pane.getBoundingClientRect().top - anchor.top;
    }
  });
  const last = thread.messages[thread.messages.length - 1]?.message_id;
  useEffect(() => {
    if (!place.current.isAtEnd && thread.arrived) setMissed((n) => n + 1);
  }, [thread.arrived]);
  useEffect(() => {
    const pane = scroller.current;
    const watch = new ResizeObserver(() => {
      if (place.current.isAtEnd) pane.scrollTop = pane.scrollHeight;
    });
    watch.observe(pane);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const pane = scroller.current;
    if (!thread.isLoading && pane.scrollHeight <= pane.clientHeight + NEAR_PX) chat.loadOlder().catch(() => {});
  }, [thread.isLoading, last]);

  const scrolled = () => {
    const pane = scroller.current;
    const isAtEnd = pane.scrollHeight - pane.scrollTop - pane.clientHeight < 24;
    const top = pane.getBoundingClientRect().top;
    const shown = [...pane.querySelectorAll('[data-id]')].find((element) => element.getBoundingClientRect().bottom > top);
    place.current = { isAtEnd, anchor: shown && { id: shown.dataset.id, top: shown.getBoundingClientRect().top - top } };
    if (isAtEnd && missed) setMissed(0);
    setAway(pane.scrollHeight - pane.scrollTop - pane.clientHeight > 400);
    if (pane.scrollTop < NEAR_PX) chat.loadOlder().catch((error) => toast(why(error), 'bad'));
  };
  const loaded = () => {
    if (place.current.isAtEnd) scroller.current.scrollTop = scroller.current.scrollHeight; // an image has its size now
  };
  const jump = () => {
    place.current.isAtEnd = true;
    setMissed(0);
    scroller.current.scrollTo({ top: scroller.current.scrollHeight, behavior: 'smooth' });
    onDone();
  };
  const keys = (event) => {
    const all = [...scroller.current.querySelectorAll('.bubble')];
    const at = all.indexOf(document.activeElement);
    if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
      if (at < 0) return;
      event.preventDefault();
      if (event.key === 'ArrowDown' && at === all.length - 1) onDone();
      else all[Math.max(0, at + (event.key === 'ArrowDown' ? 1 : -1))].focus();
    } else if (event.key === 'Escape' && at >= 0) {
      event.preventDefault();
      onDone();
    }
  };

  const isRoom = thread.row.place.room !== undefined;
  const problem = items.length ? null : thread.error;
  const empty = !items.length && !thread.isLoading && !problem;
  return html`<div class="messages" ref=${scroller} onScroll=${scrolled} onLoadCapture=${loaded} onKeyDown=${keys} role="log" aria-label=${t('chat.messages')} tabindex="-1">
    ${empty && html`<${Empty} icon=${isRoom ? 'room' : 'chat'} title=${t(isRoom ? 'chat.room.empty' : 'chat.empty')} text=${isRoom ? t('chat.room.how') : t('chat.empty.how', { name: thread.row.name })} />`}
    ${problem && (thread.isMissing
      ? html`<${Empty} icon="lock" title=${t('chat.missing')} text=${why(problem)}><${Button} onClick=${onBack}>${t('chat.back')}<//><//>`
      : html`<${ErrorBox} error=${problem} onRetry=${() => chat.openAgain()} />`)}
    ${thread.isLoading && !items.length && !problem && html`<div class="empty"><span class="spinner" role="status" aria-label=${t('loading')} /></div>`}
    <ol>
      ${isWhole && items.length > 0 && html`<li key="begin" class="notice-line">${t('chat.begin')}</li>`}
      ${items.map((item) => html`<${Item} key=${item.key} item=${item} chat=${chat} thread=${thread} onReply=${onReply} />`)}
    </ol>
    ${(missed > 0 || isAway) && html`<div class="jump"><button type="button" class="button" onClick=${jump}><${Icon} name="down" size=${16} />${missed > 0 ? t('chat.jump.n', { n: missed }) : t('chat.jump')}</button></div>`}
  </div>`;
}

function Item({ item, chat, thread, onReply }) {
  if (item.kind === 'day') return html`<li class="day"><span>${day(item.at)}</span></li>`;
  if (item.kind === 'new') return html`<li class="new-line"><span>${t('chat.newline')}</span></li>`;
  if (item.kind === 'gap') return html`<${GapLine} gap=${item.gap} isFirst=${item.isFirst} chat=${chat} thread=${thread} />`;
  if (item.kind === 'pending') return html`<${Pending} each=${item.each} chat=${chat} />`;
  const { message } = item;
  if (message.recalled) {
    const text = message.from === chat.me ? t('chat.recalled.mine') : t('chat.recalled', { who: nameOf(message.from, chat) });
    return html`<li class="notice-line" data-id=${message.message_id}>${text}</li>`;
  }
  if (isNotice(message)) return html`<li class="notice-line" data-id=${message.message_id}>${noticeOf(message, chat)}</li>`;
  return html`<${Said} item=${item} chat=${chat} thread=${thread} onReply=${onReply} />`;
}

function GapLine({ gap, isFirst, chat, thread }) {
  const load = () => chat.loadGap(gap).catch((error) => toast(why(error), 'bad'));
  if (gap.trimmed) return html`<li class="gap"><span>${t('chat.gap.trimmed')}</span></li>`;
  const text = isFirst ? t('chat.older') : t('chat.gap.load');
  return html`<li class="gap ${isFirst ? 'first' : ''}">${!isFirst && html`<span>${t('chat.gap')}</span>`}<${Button} small busy=${thread.busy.has(gap.before)} onClick=${load}>${text}<//></li>`;
}

const Words = ({ text }) => html`<span class="words">${piecesOf(text).map((piece) => (typeof piece === 'object' ? html`<a href=${piece.link} target="_blank" rel="noopener noreferrer">${piece.link}</a>` : piece))}</span>`;

function Quote({ id, chat }) {
  const message = chat.quote(id);
  const text = !message ? '…' : message.recalled ? t('chat.gone') : bodyOf(message);
  return html`<blockquote class="quote"><b>${message ? nameOf(message.from, chat) : ''}</b><span>${text}</span></blockquote>`;
}

function Ticks({ message, thread }) {
  const isPrivate = thread.row.place.with !== undefined;
  const state = isPrivate && message.read_at ? 'read' : isPrivate && message.delivered_at ? 'delivered' : 'sent';
  return html`<span class="ticks ${state}" role="img" aria-label=${t(`chat.${state}`)} title=${t(`chat.${state}`)}><${Icon} name=${state === 'sent' ? 'check' : 'checks'} size=${15} /></span>`;
}

function Said({ item, chat, thread, onReply }) {
  const { message, isFirst, isLast } = item;
  const isMine = message.from === chat.me;
  const showsFace = !isMine && thread.row.place.with === undefined;
  const isStored = thread.row.place.room === undefined;
  const name = nameOf(message.from, chat);
  const [asks, setAsks] = useState(false);
  const media = mediaOf(message);
  const recall = () => chat.client.recall({ message_id: message.message_id });
  const copy = () => navigator.clipboard.writeText(message.text ?? '').then(() => toast(t('chat.copied')), () => {});
  const keys = (event) => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'r' && isStored) {
      event.preventDefault();
      onReply(message);
    } else if (event.key === 'Delete' && isMine && isStored) setAsks(true);
    else if (event.key === 'c') copy();
  };
  return html`<li class="said ${isMine ? 'mine' : 'theirs'} ${isFirst ? 'first' : ''} ${isLast ? 'last' : ''} ${thread.marked === message.message_id ? 'target' : ''}" data-id=${message.message_id}>
    ${showsFace && html`<span class="face">${isLast && html`<${Avatar} id=${message.from} name=${name} size="s" />`}</span>`}
    <div class="bubble" tabindex="-1" onKeyDown=${keys} aria-label=${`${name}, ${clock(message.at)}: ${bodyOf(message)}`}>
      ${showsFace && isFirst && html`<b class="from">${name}</b>`}
      ${message.ref && html`<${Quote} id=${message.ref} chat=${chat} />`}
      ${media ? html`<${Media} media=${media} />` : message.text === undefined ? html`<i class="words muted">${bodyOf(message)}</i>` : html`<${Words} text=${message.text} />`}
      <span class="meta number">${clock(message.at)}${isMine && isStored && html`<${Ticks} message=${message} thread=${thread} />`}</span>
    </div>
    <span class="deeds">
      ${isStored && html`<${Button} kind="quiet" small icon="reply" label=${t('chat.reply')} onClick=${() => onReply(message)} />`}
      ${isStored && isMine && html`<${Button} kind="quiet" small icon="undo" label=${t('chat.recall')} onClick=${() => setAsks(true)} />`}
    </span>
    ${asks && html`<${Confirm} title=${t('chat.recall.sure')} text=${t('chat.recall.text')} go=${t('chat.recall')} onGo=${recall} onClose=${() => setAsks(false)}><blockquote class="recalling">${bodyOf(message)}</blockquote><//>`}
  </li>`;
}

function Pending({ each, chat }) {
  return html`<li class="said mine first last pending ${each.error ? 'failed' : ''}">
    <div class="bubble" tabindex="-1">
      ${each.ref && html`<${Quote} id=${each.ref} chat=${chat} />`}
      <${Words} text=${each.text} />
      <span class="meta number">${clock(each.at)}<span class="ticks" role="img" aria-label=${t('chat.pending')}><${Icon} name=${each.error ? 'alert' : 'clock'} size=${14} /></span></span>
    </div>
    ${each.error && html`<div class="trouble" role="alert"><span>${t('chat.failed', { why: why(each.error) })}</span>
      <${Button} small onClick=${() => chat.again(each)}>${t('chat.again')}<//><${Button} small kind="quiet" onClick=${() => chat.discard(each)}>${t('chat.discard')}<//></div>`}
  </li>`;
}

function Composer({ chat, thread, box, reply, onReplied, onLater }) {
  const [text, setText] = useState(chat.drafts.get(thread.key) ?? '');
  const isRoom = thread.row.place.room !== undefined;
  useLayoutEffect(() => {
    const area = box.current;
    area.style.height = 'auto';
    area.style.height = `${Math.min(area.scrollHeight, 168)}px`;
  }, [text]);
  useEffect(() => {
    if (matchMedia('(min-width: 721px)').matches) box.current.focus();
  }, []);
  const write = (value) => {
    setText(value);
    if (value.trim()) {
      chat.drafts.set(thread.key, value);
      chat.type();
    } else chat.drafts.delete(thread.key);
  };
  const send = () => {
    const said = text.trim();
    if (!said) return;
    write('');
    onReplied();
    chat.say(said, { ref: reply?.message_id }).catch((error) => toast(why(error), 'bad'));
  };
  const keys = (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    } else if (event.key === 'ArrowUp' && !text) {
      const all = document.querySelectorAll('.messages .bubble');
      if (!all.length) return;
      event.preventDefault();
      all[all.length - 1].focus();
    }
  };
  const later = () => onLater(text.trim(), () => write(''));
  return html`<footer class="composer">
    ${reply && html`<div class="replying"><${Icon} name="reply" size=${16} /><span class="grow cut"><b>${reply.from === chat.me ? t('chat.replying.mine') : t('chat.replying', { who: nameOf(reply.from, chat) })}</b> ${bodyOf(reply)}</span><${Button} kind="quiet" small icon="close" label=${t('chat.reply.drop')} onClick=${onReplied} /></div>`}
    <div class="bar">
      ${!isRoom && html`<${Button} kind="quiet" icon="clock" label=${t('later.title')} onClick=${later} />`}
      <textarea ref=${box} rows="1" class="input" aria-label=${t('chat.write')} placeholder=${t('chat.write.to', { name: thread.row.name })} value=${text} onInput=${(event) => write(event.target.value)} onKeyDown=${keys} />
      <${Button} kind="primary" icon="send" label=${t('chat.send')} disabled=${!text.trim()} onClick=${send} />
    </div>
  </footer>`;
}
