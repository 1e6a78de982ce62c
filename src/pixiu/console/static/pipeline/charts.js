/** Bars and a heat map, drawn as SVG in the colours of now. */
import { clock } from '/format.js';
import { html, useEffect, useRef, useState } from '/ui.js';

const WIDTH = 640; // until the page says how wide it is
const HEIGHT = 200;
const [LEFT, RIGHT, TOP, BOTTOM] = [48, 8, 10, 24];
const LINES = 4; // of the grid, at most, above the lowest
const LABEL = 62; // room for the name of a bar
const ROW = 22;
const NAMES = 180;

/** The labels of an axis of counts: two to five whole numbers from 0 up to the first one that is not below `value`. */
export function ticks(value) {
  let power = 1;
  while (power * 10 * LINES < value) power *= 10;
  const step = power * [1, 2, 5, 10].find((factor) => power * factor * LINES >= value);
  return Array.from({ length: Math.max(Math.ceil(value / step), 1) + 1 }, (_, index) => index * step);
}

/** A box, and how wide it is now: drawings are made for that width, so that texts keep their size. */
function useWidth() {
  const box = useRef(null);
  const [width, setWidth] = useState(WIDTH);
  useEffect(() => {
    const sized = new ResizeObserver(() => setWidth(Math.max(box.current?.clientWidth ?? 0, 160)));
    sized.observe(box.current);
    return () => sized.disconnect();
  }, []);
  return [box, width];
}

/** Upright bars. `bars` are `{ name, parts: [value …] }`, parts stacked, in `colours`; `labels` name the parts. */
export function Bars({ label, bars, format, labels = [], colours = ['--chart-1', '--chart-2'] }) {
  const [box, width] = useWidth();
  const sum = (bar) => bar.parts.reduce((total, part) => total + part, 0);
  const values = ticks(Math.max(...bars.map(sum), 0));
  const most = values[values.length - 1];
  const inner = width - LEFT - RIGHT;
  const tall = HEIGHT - TOP - BOTTOM;
  const step = inner / Math.max(bars.length, 1);
  const wide = Math.min(step * 0.7, 46);
  const named = Math.max(1, Math.ceil((bars.length * LABEL) / inner));
  const lines = values.map((value) => ({ y: TOP + tall * (1 - value / most), value }));
  return html`<figure class="chart" aria-label=${label} ref=${box}>
    ${labels.length > 0 && html`<figcaption>${labels.map((each, index) => html`<span key=${each} class="key"><i style=${{ background: `var(${colours[index]})` }} />${each}</span>`)}</figcaption>`}
    <svg class="bars" viewBox=${`0 0 ${width} ${HEIGHT}`} role="img" aria-label=${bars.map((bar) => `${bar.name}: ${format(sum(bar))}`).join(', ')}>
      ${lines.map(({ y, value }) => html`<line x1=${LEFT} x2=${width - RIGHT} y1=${y} y2=${y} /><text x=${LEFT - 8} y=${y + 4} text-anchor="end">${format(value)}</text>`)}
      ${bars.map((bar, index) => {
        const x = LEFT + step * index + (step - wide) / 2;
        let y = TOP + tall;
        return html`<g key=${bar.name}><title>${bar.name}: ${format(sum(bar))}</title>
          ${bar.parts.map((part, which) => {
            const high = (tall * part) / most;
            y -= high;
            return html`<rect x=${x} y=${y} width=${wide} height=${Math.max(high, part ? 0.5 : 0)} fill=${`var(${colours[which]})`} />`;
          })}
          ${index % named === 0 && html`<text x=${x + wide / 2} y=${HEIGHT - 7} text-anchor="middle">${bar.name}</text>`}</g>`;
      })}
    </svg>
  </figure>`;
}

const cut = (text, length) => ([...text].length > length ? `${[...text].slice(0, length - 1).join('')}…` : text);

/** A line for each of `rows` (`{ name, messages }`), a column for each of `times`; darker where more was said. */
export function HeatMap({ label, times, rows, format }) {
  const [box, width] = useWidth();
  const names = Math.min(NAMES, width * 0.4);
  const inner = width - names - RIGHT;
  const height = TOP + ROW * rows.length + BOTTOM;
  const wide = inner / Math.max(times.length, 1);
  const most = Math.max(...rows.flatMap((row) => row.messages), 1);
  return html`<figure class="chart" aria-label=${label} ref=${box}><svg class="heat" viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${label}>
    ${rows.map((row, line) => {
      const y = TOP + ROW * line + 1;
      return html`<g key=${line}><text x=${names - 8} y=${y + ROW - 8} text-anchor="end">${cut(row.name, Math.floor(names / 6.6))}<title>${row.name}</title></text>
        <rect class="cold" x=${names} y=${y} width=${inner} height=${ROW - 2} />
        ${row.messages.map((count, at) => count > 0 && html`<rect class="hot" x=${names + wide * at} y=${y} width=${wide + 0.3} height=${ROW - 2} opacity=${0.15 + 0.85 * Math.sqrt(count / most)}><title>${row.name}, ${clock(times[at])}: ${format(count)}</title></rect>`)}</g>`;
    })}
    ${times.length > 0 && html`<text x=${names} y=${height - 7}>${clock(times[0])}</text><text x=${width - RIGHT} y=${height - 7} text-anchor="end">${clock(times[times.length - 1])}</text>`}
  </svg></figure>`;
}
