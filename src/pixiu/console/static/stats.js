/** What went on between two readings of /v1/admin/stats: rates, and latencies of just that time. */

export const HOPS = ['accept', 'apply', 'deliver', 'ack'];

/** The value below which `share` of what was counted lies, in seconds; null if nothing was counted. */
export function quantile(bounds, counts, share) {
  const wanted = share * counts.reduce((sum, count) => sum + count, 0);
  if (!(wanted > 0)) return null;
  let below = 0;
  let lower = 0;
  for (let index = 0; index < bounds.length; index += 1) {
    const count = counts[index];
    if (count && below + count >= wanted) return lower + ((bounds[index] - lower) * (wanted - below)) / count;
    below += count;
    lower = bounds[index];
  }
  return bounds[bounds.length - 1];
}

/** Of two readings of one life of a server; null if they are not. */
export function between(before, now) {
  if (!before || before.started_at !== now.started_at || now.uptime_ms <= before.uptime_ms) return null;
  const seconds = (now.uptime_ms - before.uptime_ms) / 1000;
  const rate = (name) => (now.counters[name] - before.counters[name]) / seconds;
  const hops = {};
  for (const hop of HOPS) {
    const counts = now.hops[hop].counts.map((count, index) => count - before.hops[hop].counts[index]);
    const of = (share) => {
      const found = quantile(now.hops.bounds, counts, share);
      return found === null ? null : found * 1000;
    };
    hops[hop] = { count: counts.reduce((sum, count) => sum + count, 0), p50: of(0.5), p90: of(0.9), p99: of(0.99) };
  }
  return { seconds, rate, hops, cpu: (now.process.cpu_seconds - before.process.cpu_seconds) / seconds };
}
