/** Lines over time, drawn by uPlot in the colours of the theme. */
import uPlot from 'uplot';
import { language } from '/i18n.js';
import { theme } from '/theme.js';
import { html, useEffect, useMemo, useRef, useState } from '/ui.js';

const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const TINTS = 24; // how strong the area below the first line is, of 255

const ALONE_S = 60; // of time around a single value, so that the axis has labels

/** A single value with nothing before and after it. */
const framed = ([times, ...lines]) => [[times[0] - ALONE_S, times[0], times[0] + ALONE_S], ...lines.map(([value]) => [null, value, null])];

/** Steps of the time axis in seconds: none is shorter than what its labels tell apart. */
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];

const clockOf = (seconds) => {
  const at = new Date(seconds * 1000);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((each) => String(each).padStart(2, '0')).join(':');
};

/** Steps of an axis of counts: whole numbers. */
const WHOLE = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();

/** Indexes of values without a neighbour: a line would not show them. */
const alone = (values) => values.flatMap((value, at) => ((value ?? null) !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null ? [at] : []));

/** One line of the grid for each power of ten: those between say nothing more. */
function powers(low, high) {
  const found = [];
  for (let power = Math.ceil(Math.log10(low) - 0.01); power <= Math.log10(high) + 0.01; power += 1) found.push(10 ** power);
  return found;
}

function options({ series, format, log, filled, whole }, width, height, onCursor) {
  const ink = token('--ink-3');
  const line = token('--line');
  const axis = { stroke: ink, font: `11px ${token('--font')}`, grid: { stroke: line, width: 1 }, ticks: { show: false } };
  return {
    width, height, legend: { show: false }, padding: [8, 28, 0, 0],
    cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
    scales: {
      x: { time: false },
      y: log
        ? { distr: 3, log: 10, range: (_, low, high) => (low === null || !(low > 0) ? [0.1, 100] : uPlot.rangeLog(low, Math.max(high, low * 10), 10, true)) }
        : { range: (_, low, high) => [0, Math.max((high ?? 0) * 1.15, 4)] },
    },
    axes: [
      { ...axis, size: 26, values: (_, splits) => splits.map(clockOf), space: 90, incrs: STEPS },
      { ...axis, size: 58, values: (_, splits) => splits.map(format), ...(log ? { splits: (_, __, low, high) => powers(low, high) } : { space: 36, ...(whole && { incrs: WHOLE }) }) },
    ],
    series: [
      {},
      ...series.map(({ label, colour }, index) => ({
        label, stroke: token(colour), width: 2, spanGaps: false, // where nothing was observed there is no line
        points: { size: 5, show: (plot) => plot.data[0].length < 4, filter: (plot, line, isShown) => (isShown ? null : alone(plot.data[line])) },
        fill: filled && index === 0 ? token(colour) + TINTS.toString(16) : undefined,
      })),
    ],
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)] },
  };
}

/**
 * `series` are `{ label, colour }`, colour being a token; `data` is `[seconds, values, values …]` with null for a gap;
 * `format` makes a text of a value; `whole` keeps fractions off the axis. The legend shows the newest values, or those
 * below the pointer.
 */
export function Chart({ label, series, data: given, format, log = false, filled = false, whole = false, height = 200 }) {
  const data = useMemo(() => (given[0].length === 1 ? framed(given) : given), [given]);
  const box = useRef(null);
  const plot = useRef(null);
  const [at, setAt] = useState(null);
  const look = `${theme()} ${language()} ${series.length}`;
  useEffect(() => {
    const made = new uPlot(options({ series, format, log, filled, whole }, box.current.clientWidth || 300, height, setAt), data, box.current);
    plot.current = made;
    const sized = new ResizeObserver(() => made.setSize({ width: Math.max(box.current?.clientWidth ?? 0, 120), height }));
    sized.observe(box.current);
    return () => {
      sized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [look]);
  useEffect(() => plot.current?.setData(data), [data]);
  const shown = (values) => {
    const value = at === null ? values.findLast((each) => each !== null && each !== undefined) : values[at];
    return value === null || value === undefined ? '–' : format(value);
  };
  return html`<figure class="chart" aria-label=${label}>
    <figcaption>${series.map((each, index) => html`<span key=${each.label} class="key"><i style=${{ background: `var(${each.colour})` }} />${each.label} <b>${shown(data[index + 1] ?? [])}</b></span>`)}</figcaption>
    <div ref=${box} class="plot" />
  </figure>`;
}
