/*
 * crowd: many clients of one server. One process, one thread, one epoll.
 *
 *   --mode room    subscribers of one room and one publisher, who keeps a window of messages on their way (a message
 *                  is there when every subscriber has it) or, with --rate, says so many a second
 *   --mode pair    pairs of clients; one of each pair sends to the other, at a fixed rate over all pairs (--rate), or,
 *                  without a rate, keeps --window messages in flight (a durable message is in flight until it is both
 *                  answered and delivered)
 *   --mode hold    connect everyone, say so, and keep the connections; "cut" on stdin breaks all of them at once and
 *                  lets them come back, while pairs go on talking; "post" sends a durable message to each one of
 *                  --missed-every and waits until they are there
 *
 * --address is the first address of 127.0.0.0/8, counted from 127.0.0.2, that connections of "hold" come from: several of
 * these programs together have more ports than one address.
 * --pause is how long everyone is there before anybody talks: in a cluster, until all know who is in which room.
 * --port may be given several times: each client connects to one of these gateways, chosen by a hash of its number.
 * A client of durable pairs that gets "resync" asks for what it missed by "sync", as the protocol says.
 * --stay goes on when a connection is closed: the client reconnects with its cursor, as an SDK does. --say-ready prints a
 * line when everyone is connected. --settle is how long it waits, at the end, for answers and messages on their way.
 *
 * It speaks to Pixiu (--protocol pixiu: WebSocket, JSON; --class durable or live), NATS core (nats), Valkey's pub/sub
 * (resp) and a WebSocket server that hands what it gets to everyone (plain). With --tcp-port it speaks to Pixiu over TCP:
 * JSON behind its length.
 *
 * Every text starts with "~", its sequence and the time it was due, by which gaps, repeats and disorder are found and
 * latency is counted: a message that is sent late because the sender was kept waiting is late. Results are JSON lines
 * on stdout.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

enum {
    READ_MAX = 1 << 20,
    WATCHED_MAX = 128,       /* processes of the server */
    CARRY_MAX = 1 << 18,     /* the longest frame that is not whole */
    EVENTS_MAX = 128,
    BUCKETS = 128 + 64 * 34, /* microseconds exact to 128, then 64 steps per power of two */
    STAMP_BYTES = 25,        /* ~, 8 digits of the sequence, 16 of the time */
    RING = 1 << 16,
    PER_ADDRESS = 8000,      /* connections from one source address */
    PORTS_MAX = 16,          /* gateways */
    CUTS = 50,               /* connections cut between two looks at the sockets */
    OPENINGS = 16,           /* connections begun between two looks at the sockets */
    SETTLE_SECONDS = 20,
};

#define POST_ID 9000000000ull     /* requests from here on are messages for those who are away */
#define SYNC_ID 8000000000ull     /* the request after a push "resync" */
#define RETRY_NANOS 1000000000ull /* one that is turned away tries again after this */
#define REFUSED_NANOS 500000000ull /* after an error, a pair without a rate sends again, and a "sync" is repeated */

enum protocol { PIXIU, NATS, RESP, PLAIN };
enum mode { ROOM, PAIR, HOLD };
enum state { NEW, CONNECTING, UPGRADING, GREETED, READY };

struct connection {
    int fd, index;
    uint8_t state;
    bool is_sender, wants_write, must_ack, must_sync, missed, is_cut;
    uint32_t carried, out_from, out_to, out_size;
    char *carry, *out;
    uint64_t expected, mask, cursor, synced, opened_at, due_at; /* synced: the cursor of the last answer to "sync" */
    const char *user, *token;
};

struct histogram {
    uint64_t count[BUCKETS], total, max_us;
};

enum fate { ACCEPTED = 1, REFUSED = 2, DELIVERED = 4 };

/* The durable messages of one pair: the fate of each, by its sequence. */
struct pair {
    uint8_t *fates;
    uint32_t size, sent, done;
    uint64_t not_before; /* a message was refused: the pair waits */
    bool is_due; /* it may send again, and is in the list of those that may */
};

static struct {
    enum protocol protocol;
    enum mode mode;
    const char *host, *tokens, *path;
    int port, ports[PORTS_MAX], port_count, tcp_port, connections, pairs, window, bytes, concurrency, missed_every, spread_ms, address;
    double seconds, warmup, rate, pause, settle;
    bool is_live, stays, says_ready;
    int watch_pids[WATCHED_MAX], watched;
} opt = {
    .protocol = PIXIU, .mode = ROOM, .host = "127.0.0.1", .path = "/ws", .connections = 1000, .window = 128,
    .bytes = 100, .concurrency = 64, .seconds = 3, .warmup = 0.5, .missed_every = 10, .settle = SETTLE_SECONDS,
};

static struct connection *all;
static int count, epoll_fd, opening, ready, next_to_open, away, pair_base;
static struct pair *pairs; /* of durable messages; NULL: their fates are not kept */
static int *due_pairs, due_count;
static uint64_t pairs_done, refused;
static struct connection **waiting; /* those that come back, by the time they are due */
static int waiting_from, waiting_to;
static struct histogram latency, calm, lateness; /* lateness: by how much this program itself sent too late */
static uint64_t delivered, published, completed, gaps, repeats, disorder, errors, answers, closed_early, connects;
static uint64_t sent_pairs, received_pairs, resyncs, turned_away, posts_taken;
static uint16_t remaining[RING];
static bool counting, in_storm;
static char first_error[200];
static char buffer[CARRY_MAX + READ_MAX];
static uint64_t next_event_at; /* when the next thing is due by the clock, 0: nothing */

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("crowd: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void note_error(const char *text, size_t size) {
    errors++;
    if (first_error[0]) return;
    size_t kept = size < sizeof first_error - 1 ? size : sizeof first_error - 1;
    for (size_t i = 0; i < kept; i++) {
        char c = text[i];
        first_error[i] = c == '"' || c == '\\' || (unsigned char)c < 32 || (unsigned char)c > 126 ? ' ' : c;
    }
    first_error[kept] = 0;
}

static uint64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static double own_cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_seconds_of(int pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return 0;
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double watched_cpu_seconds(void) {
    double seconds = 0;
    for (int i = 0; i < opt.watched; i++) seconds += cpu_seconds_of(opt.watch_pids[i]);
    return seconds;
}

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (memory == NULL) die("out of memory");
    return memory;
}

/* ---- latency ------------------------------------------------------------------------------------------------ */

static void count_latency(struct histogram *histogram, uint64_t nanos) {
    uint64_t us = nanos / 1000;
    size_t bucket = us;
    if (us > histogram->max_us) histogram->max_us = us;
    if (us >= 128) {
        int power = 63 - __builtin_clzll(us);
        bucket = 128 + (size_t)(power - 7) * 64 + ((us >> (power - 6)) & 63);
    }
    histogram->count[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
    histogram->total++;
}

static uint64_t percentile(const struct histogram *histogram, double share) {
    uint64_t wanted = (uint64_t)((double)histogram->total * share), seen = 0;
    for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
        seen += histogram->count[bucket];
        if (seen > wanted) {
            if (bucket < 128) return bucket;
            size_t power = (bucket - 128) / 64 + 7, step = (bucket - 128) % 64;
            return (1ull << power) + ((uint64_t)(step + 1) << (power - 6)) - 1;
        }
    }
    return histogram->max_us;
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

static void lose(struct connection *c);

static void watch(struct connection *c, bool wants_write) {
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
    c->wants_write = wants_write;
}

static void flush(struct connection *c) {
    while (c->out_from < c->out_to) {
        ssize_t sent = send(c->fd, c->out + c->out_from, c->out_to - c->out_from, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            if (errno == EAGAIN || errno == EINTR) break;
            lose(c);
            return;
        }
        c->out_from += (uint32_t)sent;
    }
    if (c->out_from == c->out_to) {
        c->out_from = c->out_to = 0;
        if (!c->is_sender) {
            free(c->out);
            c->out = NULL;
            c->out_size = 0;
        }
        if (c->wants_write) watch(c, false);
    } else if (!c->wants_write) {
        watch(c, true);
    }
}

static char *room_for(struct connection *c, size_t bytes) {
    if (c->out_from > 0 && c->out_to + bytes > c->out_size) {
        memmove(c->out, c->out + c->out_from, c->out_to - c->out_from);
        c->out_to -= c->out_from;
        c->out_from = 0;
    }
    if (c->out_to + bytes > c->out_size) {
        c->out_size = (uint32_t)((c->out_to + bytes) * 2);
        c->out = realloc(c->out, c->out_size);
        if (c->out == NULL) die("out of memory");
    }
    return c->out + c->out_to;
}

static void put(struct connection *c, const char *text, size_t size) {
    memcpy(room_for(c, size), text, size);
    c->out_to += (uint32_t)size;
}

/* A text frame of a client. Its mask is zero, which leaves the text as it is. */
static void put_frame(struct connection *c, const char *text, size_t size, int opcode) {
    if (opt.tcp_port) {
        char length[4] = {0, (char)(size >> 16), (char)(size >> 8), (char)size};
        put(c, length, sizeof length);
        put(c, text, size);
        return;
    }
    char head[8] = {(char)(0x80 | opcode), (char)(0x80 | (size < 126 ? size : 126))};
    size_t used = 2;
    if (size >= 126) {
        head[2] = (char)(size >> 8);
        head[3] = (char)size;
        used = 4;
    }
    put(c, head, used);
    put(c, "\0\0\0\0", 4);
    put(c, text, size);
}

static void put_request(struct connection *c, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put_frame(c, text, (size_t)size, 1);
}

static void put_line(struct connection *c, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put(c, text, (size_t)size);
}

/* ---- messages ----------------------------------------------------------------------------------------------- */

static const char *stamped(uint64_t sequence, uint64_t at) {
    static char text[4096];
    int size = snprintf(text, sizeof text, "~%08x%016llx", (unsigned)sequence, (unsigned long long)at);
    memset(text + size, 'x', (size_t)(opt.bytes - size));
    text[opt.bytes] = 0;
    return text;
}

static uint64_t digits(const char *text, int size) {
    uint64_t value = 0;
    for (int i = 0; i < size; i++) {
        char c = text[i];
        value = value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return value;
}

static struct pair *pair_of(const struct connection *c) {
    return &pairs[(c->index - pair_base) / 2];
}

static void let_send(struct pair *pair) {
    if (opt.rate > 0 || pair->is_due) return;
    pair->is_due = true;
    due_pairs[due_count++] = (int)(pair - pairs);
}

static bool is_done(uint8_t fate) {
    return fate & REFUSED || (fate & (ACCEPTED | DELIVERED)) == (ACCEPTED | DELIVERED);
}

static void mark(const struct connection *c, uint64_t sequence, enum fate fate) {
    if (pairs == NULL) return;
    struct pair *pair = pair_of(c);
    if (sequence >= pair->sent) return; /* no message of this run */
    uint8_t before = pair->fates[sequence];
    pair->fates[sequence] |= (uint8_t)fate;
    if (is_done(before) || !is_done(pair->fates[sequence])) return;
    pair->done++;
    pairs_done++;
    if (fate == REFUSED) pair->not_before = nanoseconds() + REFUSED_NANOS;
    let_send(pair);
}

/* The sequence of the next message of a pair. */
static uint64_t next_sequence(struct pair *pair) {
    if (pair->sent == pair->size) {
        uint32_t size = pair->size ? pair->size * 2 : 256;
        pair->fates = realloc(pair->fates, size);
        if (pair->fates == NULL) die("out of memory");
        memset(pair->fates + pair->size, 0, size - pair->size);
        pair->size = size;
    }
    return pair->sent++;
}

/* Room number of a connection: everyone shares one, or each pair has its own. */
static int room_of(const struct connection *c) {
    return opt.mode == ROOM ? 0 : (c->index - pair_base) / 2;
}

static void say(struct connection *c, uint64_t sequence, uint64_t at) {
    const char *text = stamped(sequence, at);
    switch (opt.protocol) {
    case PIXIU:
        if (opt.mode == ROOM || opt.is_live)
            put_request(c, "{\"id\":%llu,\"action\":\"say\",\"params\":{\"room\":\"r%d\",\"text\":\"%s\"}}",
                        (unsigned long long)sequence + 2, room_of(c), text);
        else
            put_request(c, "{\"id\":%llu,\"action\":\"send\",\"params\":{\"to\":\"%s\",\"text\":\"%s\",\"send_id\":\"%llx\"}}",
                        (unsigned long long)sequence + 2, all[c->index + 1].user, text, (unsigned long long)at);
        break;
    case NATS: put_line(c, "PUB r%d %d\r\n%s\r\n", room_of(c), opt.bytes, text); break;
    case RESP: put_line(c, "PUBLISH r%d %s\r\n", room_of(c), text); break;
    case PLAIN: put_frame(c, text, (size_t)opt.bytes, 1); break;
    }
}

static void settle(uint64_t sequence) {
    remaining[sequence % RING]--;
    while (completed < published && remaining[completed % RING] == 0) completed++;
}

static void heard(struct connection *c, const char *stamp, const char *end) {
    if (end - stamp < STAMP_BYTES) return note_error(stamp, (size_t)(end - stamp));
    if (c->is_sender) return; /* what it said itself */
    uint64_t sequence = digits(stamp + 1, 8), at = digits(stamp + 9, 16);
    if (opt.mode != ROOM && c->index < pair_base) { /* one that came back: what it missed */
        c->missed = false;
        return;
    }
    if (sequence >= c->expected) {
        uint64_t skipped = sequence - c->expected;
        gaps += skipped;
        if (opt.mode == ROOM)
            for (uint64_t i = c->expected; i <= sequence; i++) settle(i);
        c->mask = skipped >= 63 ? 1 : (c->mask << (skipped + 1)) | 1;
        c->expected = sequence + 1;
    } else if (c->expected - 1 - sequence < 64 && !(c->mask >> (c->expected - 1 - sequence) & 1)) {
        c->mask |= 1ull << (c->expected - 1 - sequence);
        disorder++;
        gaps--;
    } else {
        repeats++;
        return;
    }
    if (opt.mode != ROOM) received_pairs++;
    mark(c, sequence, DELIVERED);
    if (!counting) return;
    delivered++;
    uint64_t now = nanoseconds();
    count_latency(in_storm ? &latency : opt.mode == HOLD ? &calm : &latency, now > at ? now - at : 0);
}

/* ---- what servers say --------------------------------------------------------------------------------------- */

static void become_ready(struct connection *c) {
    if (c->state == READY) return;
    c->state = READY;
    opening--;
    ready++;
    connects++;
    if (c->is_cut) {
        c->is_cut = false;
        away--;
    }
}

static void greet(struct connection *c) {
    bool is_listener = opt.mode != HOLD || c->index >= pair_base;
    c->state = GREETED;
    switch (opt.protocol) {
    case PIXIU:
        if (is_listener && (opt.mode == ROOM || opt.is_live))
            put_request(c, "{\"id\":1,\"action\":\"enter\",\"params\":{\"room\":\"r%d\"}}", room_of(c));
        else
            become_ready(c);
        break;
    case NATS:
        put_line(c, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n");
        if (!c->is_sender) put_line(c, "SUB r%d 1\r\n", room_of(c));
        put_line(c, "PING\r\n");
        break;
    case RESP:
        if (c->is_sender) put_line(c, "PING\r\n");
        else put_line(c, "SUBSCRIBE r%d\r\n", room_of(c));
        break;
    case PLAIN: become_ready(c); break;
    }
    flush(c);
}

#define STARTS(text, size, word) ((size) >= sizeof(word) - 1 && memcmp(text, word, sizeof(word) - 1) == 0)

static void ask_sync(struct connection *c) {
    put_request(c, "{\"id\":%llu,\"action\":\"sync\",\"params\":{\"cursor\":\"%llu\"}}", SYNC_ID,
                (unsigned long long)c->cursor);
}

/* The answer to "sync": messages, and the new cursor at its end. */
static void synced(struct connection *c, const char *text, size_t size) {
    static const char name[] = "\"cursor\":\"";
    const char *end = text + size, *cursor = NULL, *at = text;
    while ((at = memchr(at, '~', (size_t)(end - at))) != NULL) {
        struct pair *pair = pair_of(c);
        uint64_t sequence = end - at < STAMP_BYTES ? pair->sent : digits(at + 1, 8);
        bool is_known = sequence < pair->sent && pair->fates[sequence] & DELIVERED; /* pushed before the answer */
        if (!is_known) heard(c, at, end);
        at++;
    }
    for (at = text; (at = memmem(at, (size_t)(end - at), name, sizeof name - 1)) != NULL; at++) cursor = at;
    if (cursor == NULL) return;
    uint64_t value = strtoull(cursor + sizeof name - 1, NULL, 10);
    if (value > c->cursor) {
        c->cursor = value;
        c->must_ack = true;
    }
    c->synced = c->cursor;
    if (memmem(text, size, "\"has_more\":true", 15) != NULL) ask_sync(c);
}

static void pixiu_said(struct connection *c, const char *text, size_t size) {
    if (STARTS(text, size, "{\"push\":\"message\"")) {
        const char *stamp = memchr(text, '~', size);
        if (STARTS(text + 17, size - 17, ",\"cursor\":\"")) {
            uint64_t cursor = strtoull(text + 28, NULL, 10);
            c->must_ack = true;
            if (c->synced && cursor <= c->synced) return; /* the answer to "sync" had it */
            c->cursor = cursor;
        }
        if (stamp == NULL) return note_error(text, size);
        heard(c, stamp, text + size);
    } else if (STARTS(text, size, "{\"id\":")) {
        answers++;
        uint64_t id = strtoull(text + 6, NULL, 10);
        bool is_error = memmem(text, size < 60 ? size : 60, "\"error\"", 7) != NULL;
        bool is_sync = pairs != NULL && id == SYNC_ID;
        if (is_error && is_sync) c->must_sync = true;
        else if (is_error) note_error(text, size);
        else if (c->state == GREETED) become_ready(c);
        else if (id >= POST_ID) posts_taken++;
        if (is_sync) {
            if (!is_error) synced(c, text, size);
        } else if (pairs != NULL && c->is_sender && id >= 2) {
            refused += is_error;
            mark(c, id - 2, is_error ? REFUSED : ACCEPTED);
        }
    } else if (STARTS(text, size, "{\"push\":\"contacts\"")) {
        if (c->state == UPGRADING) greet(c);
    } else if (STARTS(text, size, "{\"push\":\"kick\"")) {
        note_error(text, size);
    } else if (STARTS(text, size, "{\"push\":\"resync\"")) {
        resyncs++;
        if (pairs != NULL && !c->is_sender) ask_sync(c);
    }
}

/* One WebSocket frame; how many bytes it has, 0 if it is not whole. */
static size_t websocket_frame(struct connection *c, const char *data, size_t size) {
    if (size < 2) return 0;
    const unsigned char *head = (const unsigned char *)data;
    size_t used = 2, length = head[1] & 127;
    if (length == 126) {
        if (size < 4) return 0;
        length = (size_t)head[2] << 8 | head[3];
        used = 4;
    } else if (length == 127) {
        if (size < 10) return 0;
        length = 0;
        for (int i = 2; i < 10; i++) length = length << 8 | head[i];
        used = 10;
    }
    if (size < used + length) {
        if (used + length > CARRY_MAX) die("a frame of %zu bytes", length);
        return 0;
    }
    const char *text = data + used;
    switch (head[0] & 15) {
    case 1:
    case 2:
        if (opt.protocol == PIXIU) pixiu_said(c, text, length);
        else heard(c, text, text + length);
        break;
    case 8:
        note_error(text + 2, length > 2 ? length - 2 : 0);
        if (opt.stays) lose(c); /* as a client that answers and goes */
        break;
    case 9:
        put_frame(c, text, length, 10);
        break;
    }
    return used + length;
}

/* One frame over TCP; how many bytes it has, 0 if it is not whole. */
static size_t tcp_frame(struct connection *c, const char *data, size_t size) {
    if (size < 4) return 0;
    const unsigned char *head = (const unsigned char *)data;
    size_t length = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
    if (length + 4 > CARRY_MAX) die("a frame of %zu bytes", length);
    if (size < length + 4) return 0;
    if (c->state == CONNECTING) c->state = UPGRADING;
    pixiu_said(c, data + 4, length);
    return length + 4;
}

static size_t handshake(struct connection *c, const char *data, size_t size) {
    const char *end = memmem(data, size, "\r\n\r\n", 4);
    if (end == NULL) return 0;
    if (!STARTS(data, size, "HTTP/1.1 101")) {
        if (!c->is_cut) note_error(data, size);
        return size;
    }
    c->state = UPGRADING;
    if (opt.protocol == PLAIN) greet(c);
    return (size_t)(end - data) + 4;
}

static size_t nats_line(struct connection *c, const char *data, size_t size) {
    const char *end = memchr(data, '\n', size);
    if (end == NULL) return 0;
    size_t used = (size_t)(end - data) + 1;
    if (STARTS(data, size, "MSG ")) {
        const char *space = memrchr(data, ' ', used);
        size_t length = strtoul(space, NULL, 10);
        if (size < used + length + 2) return 0;
        heard(c, data + used, data + used + length);
        return used + length + 2;
    }
    if (STARTS(data, size, "PING")) put_line(c, "PONG\r\n");
    else if (STARTS(data, size, "PONG")) become_ready(c);
    else if (STARTS(data, size, "-ERR")) note_error(data, used);
    return used;
}

/* The end of a RESP line, 0 if it is not whole. */
static size_t resp_line(const char *data, size_t size) {
    const char *end = memchr(data, '\n', size);
    return end == NULL ? 0 : (size_t)(end - data) + 1;
}

static size_t resp_value(struct connection *c, const char *data, size_t size) {
    size_t used = resp_line(data, size);
    if (used == 0) return 0;
    if (data[0] == ':' || data[0] == '+') {
        answers++;
        if (c->state == GREETED) become_ready(c);
        return used;
    }
    if (data[0] != '*') {
        note_error(data, used);
        return used;
    }
    const char *last = NULL;
    size_t length = 0;
    for (int parts = atoi(data + 1); parts > 0; parts--) {
        size_t line = resp_line(data + used, size - used);
        if (line == 0) return 0;
        if (data[used] == '$') {
            length = strtoul(data + used + 1, NULL, 10);
            if (size < used + line + length + 2) return 0;
            last = data + used + line;
            used += line + length + 2;
        } else {
            last = NULL;
            used += line;
        }
    }
    if (last != NULL && last[0] == '~') heard(c, last, last + length);
    else if (c->state == GREETED) become_ready(c);
    return used;
}

static void understand(struct connection *c, const char *data, size_t size) {
    size_t at = 0;
    while (at < size && c->fd >= 0) {
        size_t used;
        if (opt.protocol == NATS) used = nats_line(c, data + at, size - at);
        else if (opt.protocol == RESP) used = resp_value(c, data + at, size - at);
        else if (opt.tcp_port) used = tcp_frame(c, data + at, size - at);
        else if (c->state == CONNECTING) used = handshake(c, data + at, size - at);
        else used = websocket_frame(c, data + at, size - at);
        if (used == 0) break;
        at += used;
    }
    if (c->fd < 0) return;
    size_t left = size - at;
    if (left > CARRY_MAX) die("too much that is not whole");
    if (left > 0) {
        char *kept = malloc(left);
        if (kept == NULL) die("out of memory");
        memcpy(kept, data + at, left);
        c->carry = kept;
        c->carried = (uint32_t)left;
    }
    if (c->must_ack) {
        c->must_ack = false;
        put_request(c, "{\"action\":\"ack\",\"params\":{\"cursor\":\"%llu\"}}", (unsigned long long)c->cursor);
    }
    if (c->out_from < c->out_to) flush(c);
}

static void receive(struct connection *c) {
    size_t before = c->carried;
    if (before > 0) {
        memcpy(buffer, c->carry, before);
        free(c->carry);
        c->carry = NULL;
        c->carried = 0;
    }
    ssize_t got = recv(c->fd, buffer + before, READ_MAX, MSG_DONTWAIT);
    if (got <= 0) {
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) got = 0;
        else {
            lose(c);
            return;
        }
    }
    understand(c, buffer, before + (size_t)got);
}

/* ---- coming and going --------------------------------------------------------------------------------------- */

static void forget(struct connection *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    free(c->carry);
    free(c->out);
    c->carry = c->out = NULL;
    c->carried = c->out_from = c->out_to = c->out_size = 0;
    c->wants_write = c->must_ack = false;
}

static void wait_until(struct connection *c, uint64_t due_at) {
    c->due_at = due_at;
    waiting[waiting_to] = c;
    waiting_to = (waiting_to + 1) % (count + 1);
}

static void lose(struct connection *c) {
    if (c->is_cut && c->state != READY) { /* turned away in the storm: it tries again */
        turned_away++;
        opening--;
        forget(c);
        c->state = NEW;
        wait_until(c, nanoseconds() + RETRY_NANOS);
        return;
    }
    closed_early++;
    if (opt.stays) {
        c->is_cut = true;
        away++;
    }
    if (!first_error[0]) snprintf(first_error, sizeof first_error, "the server closed connection %d", c->index);
    if (c->state == READY) ready--;
    else opening--;
    forget(c);
    c->state = NEW;
    if (opt.stays) wait_until(c, nanoseconds() + RETRY_NANOS);
}

/* Which gateway a client connects to: a hash, so that the two of a pair are as often at different ones as by chance. */
static int port_of(const struct connection *c) {
    if (opt.tcp_port) return opt.tcp_port;
    return opt.port_count > 1 ? opt.ports[((uint32_t)c->index * 2654435761u >> 16) % (uint32_t)opt.port_count] : opt.port;
}

static void begin(struct connection *c) {
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket: %s", strerror(errno));
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    struct sockaddr_in from = {.sin_family = AF_INET};
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (uint32_t)(opt.address + c->index / PER_ADDRESS));
    if (opt.mode == HOLD && bind(c->fd, (struct sockaddr *)&from, sizeof from) != 0) die("bind: %s", strerror(errno));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port_of(c))};
    inet_pton(AF_INET, opt.host, &address.sin_addr);
    c->state = CONNECTING;
    c->opened_at = nanoseconds();
    opening++;
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS) {
        if (!c->is_cut) die("connect: %s", strerror(errno));
        lose(c);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
    c->wants_write = true;
    if (opt.protocol == NATS || opt.protocol == RESP) {
        greet(c);
        return;
    }
    if (opt.tcp_port) {
        char hello[1400];
        int length = snprintf(hello, sizeof hello, "{\"token\":\"%s\",\"cursor\":\"%llu\"}", c->token,
                              (unsigned long long)c->cursor);
        put_frame(c, hello, (size_t)length, 1);
        return;
    }
    char query[1400] = "", resume[40] = "";
    if (opt.protocol == PIXIU) {
        if (c->cursor) snprintf(resume, sizeof resume, "&cursor=%llu", (unsigned long long)c->cursor);
        snprintf(query, sizeof query, "?token=%s%s", c->token, resume);
    }
    char head[2000];
    int size = snprintf(head, sizeof head,
                        "GET %s%s HTTP/1.1\r\nHost: %s:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
                        opt.path, query, opt.host, port_of(c));
    put(c, head, (size_t)size);
}

/* Begin a few connections, as many as may be under way at a time. */
static void open_some(uint64_t now) {
    for (int begun = 0; begun < OPENINGS && opening < opt.concurrency; begun++) {
        if (next_to_open < count) {
            begin(&all[next_to_open++]);
        } else if (waiting_from != waiting_to && waiting[waiting_from]->due_at <= now) {
            struct connection *c = waiting[waiting_from];
            waiting_from = (waiting_from + 1) % (count + 1);
            begin(c);
        } else {
            break;
        }
    }
}

static bool may_open(uint64_t now) {
    return opening < opt.concurrency &&
           (next_to_open < count || (waiting_from != waiting_to && waiting[waiting_from]->due_at <= now));
}

/* ---- time --------------------------------------------------------------------------------------------------- */

static void turn(uint64_t until) {
    struct epoll_event events[EVENTS_MAX];
    uint64_t now = nanoseconds();
    open_some(now);
    uint64_t wake = next_event_at && next_event_at < until ? next_event_at : until;
    if (may_open(now)) wake = now;
    int64_t left = (int64_t)(wake - now);
    struct timespec wait = {.tv_sec = left > 0 ? left / 1000000000 : 0, .tv_nsec = left > 0 ? left % 1000000000 : 0};
    int found = epoll_pwait2(epoll_fd, events, EVENTS_MAX, &wait, NULL);
    if (found < 0 && errno != EINTR) die("epoll_pwait2: %s", strerror(errno));
    for (int i = 0; i < found; i++) {
        struct connection *c = events[i].data.ptr;
        if (c == NULL || c->fd < 0) continue;
        if (events[i].events & EPOLLOUT) {
            if (c->out_from < c->out_to) flush(c);
            else if (c->wants_write) watch(c, false);
            if (c->fd < 0) continue;
        }
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
    }
}

/* Publish what the window or the clock allows. */
static void publish(struct connection *publisher, uint64_t now, uint64_t *due_at, double gap) {
    bool has_said = false;
    while (publisher->fd >= 0) {
        if (gap > 0) {
            if (*due_at > now || published - completed >= RING - 1) break;
        } else if (published - completed >= (uint64_t)opt.window) {
            break;
        }
        remaining[published % RING] = (uint16_t)(count - 1);
        say(publisher, published, gap > 0 ? *due_at : now);
        published++;
        has_said = true;
        if (gap > 0) *due_at += (uint64_t)gap;
    }
    if (has_said) flush(publisher);
    next_event_at = gap > 0 ? *due_at : 0;
}

/* One message of the next pair, whenever one is due. */
static void pass_notes(uint64_t now, uint64_t *due_at, double gap) {
    while (*due_at <= now) {
        struct connection *c = &all[pair_base + 2 * (int)(sent_pairs % (uint64_t)opt.pairs)];
        uint64_t sequence = pairs != NULL ? next_sequence(pair_of(c)) : sent_pairs / (uint64_t)opt.pairs;
        if (c->fd >= 0 && c->state == READY) {
            if (in_storm) count_latency(&lateness, nanoseconds() - *due_at);
            say(c, sequence, *due_at);
            flush(c);
        } else {
            mark(c, sequence, REFUSED); /* it could not even be sent */
        }
        sent_pairs++;
        *due_at += (uint64_t)gap;
    }
    next_event_at = *due_at;
}

/* Without a rate: as many messages as each pair may have in flight. */
static void refill(void) {
    static uint64_t last_at; /* no two messages have the same time, of which the send_id is made */
    int found = due_count;
    due_count = 0;
    next_event_at = 0;
    for (int i = 0; i < found; i++) {
        struct pair *pair = &pairs[due_pairs[i]];
        if (pair->not_before > nanoseconds()) {
            due_pairs[due_count++] = due_pairs[i];
            if (!next_event_at || pair->not_before < next_event_at) next_event_at = pair->not_before;
            continue;
        }
        struct connection *c = &all[pair_base + 2 * (int)(pair - pairs)];
        pair->is_due = false;
        if (c->fd < 0 || c->state != READY) continue;
        while (pair->sent - pair->done < (uint32_t)opt.window) {
            uint64_t now = nanoseconds();
            last_at = now > last_at ? now : last_at + 1;
            say(c, next_sequence(pair), last_at);
            sent_pairs++;
        }
        flush(c);
    }
}

/* Those whose "sync" was refused ask again. */
static void sync_again(void) {
    static uint64_t at;
    if (pairs == NULL || nanoseconds() < at) return;
    at = nanoseconds() + REFUSED_NANOS;
    for (int i = 0; i < count; i++) {
        struct connection *c = &all[i];
        if (!c->must_sync || c->fd < 0 || c->state != READY) continue;
        c->must_sync = false;
        ask_sync(c);
        flush(c);
    }
}

static void all_ready(void) {
    uint64_t limit = nanoseconds() + 120ull * 1000000000ull;
    while (ready < count) {
        if (closed_early > 0 || errors > 0) die("while connecting: %s", first_error);
        if (nanoseconds() > limit) die("%d of %d connections are ready after 120 s", ready, count);
        turn(nanoseconds() + 100000000);
    }
}

static void report_latency(const char *name, const struct histogram *histogram) {
    printf("\"%sp50_us\":%llu,\"%sp99_us\":%llu,\"%sp999_us\":%llu,\"%smax_us\":%llu,", name,
           (unsigned long long)percentile(histogram, 0.5), name, (unsigned long long)percentile(histogram, 0.99), name,
           (unsigned long long)percentile(histogram, 0.999), name, (unsigned long long)histogram->max_us);
}

static void report_faults(void) {
    printf("\"gaps\":%llu,\"repeats\":%llu,\"disorder\":%llu,\"errors\":%llu,\"closed\":%llu,\"first_error\":\"%s\"}\n",
           (unsigned long long)gaps, (unsigned long long)repeats, (unsigned long long)disorder,
           (unsigned long long)errors, (unsigned long long)closed_early, first_error);
    fflush(stdout);
}

/* Of all durable messages: failed were not accepted, as far as the sender knows; lost were accepted, and not delivered. */
static void report_fates(void) {
    uint64_t accepted = 0, failed = 0, lost = 0;
    for (int i = 0; pairs != NULL && i < opt.pairs; i++) {
        for (uint32_t sequence = 0; sequence < pairs[i].sent; sequence++) {
            uint8_t fate = pairs[i].fates[sequence];
            accepted += (fate & ACCEPTED) != 0;
            failed += (fate & ACCEPTED) == 0;
            lost += (fate & ACCEPTED) && !(fate & DELIVERED);
        }
    }
    printf("\"accepted\":%llu,\"refused\":%llu,\"failed\":%llu,\"lost\":%llu,\"turned_away\":%llu,\"away\":%d,\"resyncs\":%llu,",
           (unsigned long long)accepted, (unsigned long long)refused, (unsigned long long)failed,
           (unsigned long long)lost, (unsigned long long)turned_away, away, (unsigned long long)resyncs);
}

/* ---- the modes ---------------------------------------------------------------------------------------------- */

static void run_talk(void) {
    all_ready();
    double each[WATCHED_MAX] = {0};
    for (uint64_t ends = nanoseconds() + (uint64_t)(opt.pause * 1e9); nanoseconds() < ends;) turn(ends);
    if (opt.says_ready) {
        printf("{\"connections\":%d}\n", count);
        fflush(stdout);
    }
    bool is_room = opt.mode == ROOM, is_closed_loop = !is_room && opt.rate <= 0;
    for (int i = 0; is_closed_loop && i < opt.pairs; i++) let_send(&pairs[i]);
    double gap = opt.rate > 0 ? 1e9 / opt.rate : 0;
    uint64_t began = nanoseconds(), due_at = began;
    uint64_t from = began + (uint64_t)(opt.warmup * 1e9), until = from + (uint64_t)(opt.seconds * 1e9);
    uint64_t counted_from = 0, ends = 0, published_from = 0;
    double own = 0, theirs = 0;
    for (uint64_t now = began; now < until; now = nanoseconds()) {
        if (!counting && now >= from) {
            counting = true;
            counted_from = now;
            published_from = is_room ? published : sent_pairs;
            own = own_cpu_seconds();
            theirs = watched_cpu_seconds();
            for (int i = 0; i < opt.watched; i++) each[i] = cpu_seconds_of(opt.watch_pids[i]);
        }
        if (is_room) publish(&all[0], now, &due_at, gap);
        else if (is_closed_loop) refill();
        else pass_notes(now, &due_at, gap);
        sync_again();
        turn(pairs != NULL && until > now + REFUSED_NANOS ? now + REFUSED_NANOS : until);
        if (closed_early && !opt.stays) break;
    }
    ends = nanoseconds();
    own = own_cpu_seconds() - own;
    theirs = watched_cpu_seconds() - theirs;
    for (int i = 0; i < opt.watched; i++) each[i] = cpu_seconds_of(opt.watch_pids[i]) - each[i];
    uint64_t counted = delivered, issued = (is_room ? published : sent_pairs) - published_from;
    counting = false;
    next_event_at = 0;
    uint64_t limit = ends + (uint64_t)(opt.settle * 1e9);
    while ((is_room ? completed < published : pairs ? pairs_done < sent_pairs : received_pairs + gaps < sent_pairs) &&
           nanoseconds() < limit && (!closed_early || opt.stays)) {
        sync_again();
        turn(nanoseconds() + 20000000);
    }
    uint64_t missing = is_room ? published - completed : sent_pairs - received_pairs - gaps;
    double seconds = (double)(ends - counted_from) / 1e9;
    printf("{\"deliveries\":%llu,\"published\":%llu,\"seconds\":%.4f,\"per_second\":%.1f,\"published_per_second\":%.1f,"
           "\"cpu_seconds\":%.4f,\"server_cpu_seconds\":%.4f,\"missing\":%llu,",
           (unsigned long long)counted, (unsigned long long)issued, seconds, (double)counted / seconds,
           (double)issued / seconds, own, theirs, (unsigned long long)missing);
    report_fates();
    printf("\"watched\":[");
    for (int i = 0; i < opt.watched; i++) printf("%s%.4f", i ? "," : "", each[i]);
    printf("],");
    report_latency("", &latency);
    report_faults();
}

static void talk_until(uint64_t until, uint64_t *due_at, double gap) {
    for (uint64_t now = nanoseconds(); now < until; now = nanoseconds()) {
        if (opt.pairs) pass_notes(now, due_at, gap);
        turn(until);
    }
}

/* Cut everyone but the pairs, at once, and let them come back; some of them find a message. */
static void storm(uint64_t *due_at, double gap) {
    counting = true;
    in_storm = false;
    *due_at = nanoseconds();
    uint64_t quiet = nanoseconds() + (uint64_t)(opt.seconds * 1e9);
    talk_until(quiet, due_at, gap);
    in_storm = true;
    uint64_t began = nanoseconds(), posted = 0, to_post = 0;
    double theirs = watched_cpu_seconds(), own = own_cpu_seconds();
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    away = 0;
    waiting_from = waiting_to = 0;
    uint64_t notes_at = *due_at, cut = 0;
    for (int i = 0; i < pair_base; i++) {
        struct connection *c = &all[i];
        if (i % CUTS == CUTS - 1) { /* the others talk on */
            pass_notes(nanoseconds(), &notes_at, gap);
            turn(nanoseconds());
        }
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        forget(c);
        c->state = NEW;
        c->is_cut = true;
        c->missed = opt.missed_every && i % opt.missed_every == 0;
        to_post += c->missed;
        ready--;
        away++;
    }
    cut = nanoseconds();
    opt.concurrency = count;
    for (int i = 0; i < pair_base; i++)
        wait_until(&all[i], cut + (uint64_t)opt.spread_ms * 1000000ull * (uint64_t)i / (uint64_t)pair_base);
    struct connection *postman = &all[pair_base];
    uint64_t limit = cut + 120ull * 1000000000ull, back_at = 0, in_sync_at = 0;
    while (!in_sync_at && nanoseconds() < limit) {
        uint64_t now = nanoseconds();
        pass_notes(now, &notes_at, gap);
        for (int batch = 0; batch < 4 && posted < to_post && posted < posts_taken + 32; batch++, posted++) {
            struct connection *to = &all[posted * (uint64_t)opt.missed_every];
            put_request(postman, "{\"id\":%llu,\"action\":\"send\",\"params\":{\"to\":\"%s\",\"text\":\"%s\",\"send_id\":\"m%llu\"}}",
                        POST_ID + posted, to->user, stamped(0, now), (unsigned long long)posted);
        }
        if (postman->out_to > postman->out_from) flush(postman);
        turn(now + 1000000);
        if (away == 0 && !back_at) back_at = nanoseconds();
        if (away == 0 && posted == to_post) {
            bool is_all = true;
            for (int i = 0; i < pair_base && is_all; i += opt.missed_every ? opt.missed_every : 1) is_all = !all[i].missed;
            if (is_all) in_sync_at = nanoseconds();
        }
    }
    uint64_t now = nanoseconds();
    printf("{\"cut_seconds\":%.4f,\"back_seconds\":%.4f,\"in_sync_seconds\":%.4f,\"in_sync\":%s,\"away\":%d,\"missed\":%llu,"
           "\"resyncs\":%llu,\"turned_away\":%llu,\"cpu_seconds\":%.4f,\"server_cpu_seconds\":%.4f,",
           (double)(cut - began) / 1e9, (double)((back_at ? back_at : now) - cut) / 1e9, (double)(now - cut) / 1e9,
           in_sync_at ? "true" : "false", away, (unsigned long long)to_post, (unsigned long long)resyncs,
           (unsigned long long)turned_away,
           own_cpu_seconds() - own, watched_cpu_seconds() - theirs);
    report_latency("calm_", &calm);
    report_latency("storm_", &latency);
    report_latency("late_", &lateness);
    report_faults();
    *due_at = notes_at;
}

/* The first client sends to some of the others, who only are there. */
static void post(void) {
    uint64_t began = nanoseconds(), limit = began + (uint64_t)SETTLE_SECONDS * 1000000000ull;
    int to_post = 0, arrived = 0, next = opt.missed_every;
    for (int i = opt.missed_every; i < pair_base; i += opt.missed_every, to_post++) all[i].missed = true;
    posts_taken = 0;
    for (uint64_t posted = 0; arrived < to_post && nanoseconds() < limit;) {
        for (; next < pair_base && posted < posts_taken + 32; posted++, next += opt.missed_every)
            put_request(&all[0], "{\"id\":%llu,\"action\":\"send\",\"params\":{\"to\":\"%s\",\"text\":\"%s\",\"send_id\":\"p%llu\"}}",
                        POST_ID + posted, all[next].user, stamped(0, nanoseconds()), (unsigned long long)posted);
        if (all[0].out_to > all[0].out_from) flush(&all[0]);
        turn(nanoseconds() + 1000000);
        arrived = to_post;
        for (int i = opt.missed_every; i < pair_base; i += opt.missed_every) arrived -= all[i].missed;
    }
    printf("{\"posted\":%d,\"arrived\":%d,\"seconds\":%.4f,", to_post, arrived, (double)(nanoseconds() - began) / 1e9);
    report_faults();
}

static void run_hold(void) {
    uint64_t began = nanoseconds();
    double theirs = watched_cpu_seconds(), own = own_cpu_seconds();
    all_ready();
    double seconds = (double)(nanoseconds() - began) / 1e9;
    printf("{\"connections\":%d,\"seconds\":%.4f,\"connects_per_second\":%.1f,\"cpu_seconds\":%.4f,"
           "\"server_cpu_seconds\":%.4f,", count, seconds, count / seconds, own_cpu_seconds() - own,
           watched_cpu_seconds() - theirs);
    report_faults();
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    double gap = opt.rate > 0 ? 1e9 / opt.rate : 0;
    uint64_t due_at = 0;
    for (;;) {
        char line[64];
        ssize_t got = read(STDIN_FILENO, line, sizeof line);
        if (got == 0) return;
        if (got > 0 && line[0] == 'c') storm(&due_at, gap);
        if (got > 0 && line[0] == 'p') post();
        if (got > 0 && line[0] == 'q') return;
        next_event_at = 0;
        turn(nanoseconds() + 50000000);
    }
}

static void read_tokens(void) {
    if (opt.protocol != PIXIU) return;
    FILE *file = opt.tokens ? fopen(opt.tokens, "r") : NULL;
    if (file == NULL) die("--tokens must be a file with a user and a token per line");
    char user[128], token[1200];
    for (int i = 0; i < count; i++) {
        if (fscanf(file, "%127s %1199s", user, token) != 2) die("%d tokens for %d connections", i, count);
        all[i].user = strdup(user);
        all[i].token = strdup(token);
    }
    fclose(file);
}

static int choice(const char *text, const char *const *names, const char *what) {
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(text, names[i]) == 0) return i;
    die("--%s cannot be %s", what, text);
    return 0;
}

static void read_options(int argc, char **argv) {
    static const struct option known[] = {
        {"protocol", 1, 0, 'p'}, {"mode", 1, 0, 'm'}, {"class", 1, 0, 'k'}, {"host", 1, 0, 'h'},
        {"port", 1, 0, 'P'}, {"tokens", 1, 0, 't'}, {"path", 1, 0, 'u'}, {"connections", 1, 0, 'c'},
        {"pairs", 1, 0, 'a'}, {"window", 1, 0, 'w'}, {"bytes", 1, 0, 'b'}, {"concurrency", 1, 0, 'o'},
        {"watch-pid", 1, 0, 'i'}, {"missed-every", 1, 0, 'e'}, {"spread-ms", 1, 0, 'd'}, {"address", 1, 0, 'A'},
        {"seconds", 1, 0, 's'}, {"warmup", 1, 0, 'r'}, {"rate", 1, 0, 'R'}, {"pause", 1, 0, 'S'},
        {"tcp-port", 1, 0, 'T'}, {"stay", 0, 0, 'y'}, {"say-ready", 0, 0, 'Y'}, {"settle", 1, 0, 'E'},
        {0, 0, 0, 0},
    };
    static const char *const protocols[] = {"pixiu", "nats", "resp", "plain", NULL};
    static const char *const modes[] = {"room", "pair", "hold", NULL};
    static const char *const classes[] = {"durable", "live", NULL};
    for (int found; (found = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (found) {
        case 'p': opt.protocol = (enum protocol)choice(optarg, protocols, "protocol"); break;
        case 'm': opt.mode = (enum mode)choice(optarg, modes, "mode"); break;
        case 'k': opt.is_live = choice(optarg, classes, "class") == 1; break;
        case 'h': opt.host = optarg; break;
        case 'P':
            opt.port = atoi(optarg);
            if (opt.port_count < PORTS_MAX) opt.ports[opt.port_count++] = opt.port;
            break;
        case 't': opt.tokens = optarg; break;
        case 'u': opt.path = optarg; break;
        case 'c': opt.connections = atoi(optarg); break;
        case 'a': opt.pairs = atoi(optarg); break;
        case 'w': opt.window = atoi(optarg); break;
        case 'b': opt.bytes = atoi(optarg); break;
        case 'o': opt.concurrency = atoi(optarg); break;
        case 'i':
            if (opt.watched == WATCHED_MAX) die("--watch-pid at most %d times", WATCHED_MAX);
            opt.watch_pids[opt.watched++] = atoi(optarg);
            break;
        case 'e': opt.missed_every = atoi(optarg); break;
        case 'd': opt.spread_ms = atoi(optarg); break;
        case 'A': opt.address = atoi(optarg); break;
        case 's': opt.seconds = atof(optarg); break;
        case 'r': opt.warmup = atof(optarg); break;
        case 'R': opt.rate = atof(optarg); break;
        case 'S': opt.pause = atof(optarg); break;
        case 'T': opt.tcp_port = atoi(optarg); break;
        case 'y': opt.stays = true; break;
        case 'Y': opt.says_ready = true; break;
        case 'E': opt.settle = atof(optarg); break;
        default: exit(2);
        }
    }
    if (opt.bytes < STAMP_BYTES || opt.bytes > 900) die("--bytes must be from %d to 900", STAMP_BYTES);
    if (opt.window < 1 || opt.window >= RING) die("--window must be from 1 to %d", RING - 1);
    if (opt.mode == PAIR && opt.pairs < 1) die("--mode pair needs --pairs");
    if (opt.mode == PAIR && opt.rate <= 0 && (opt.is_live || opt.protocol != PIXIU))
        die("--mode pair without --rate is for durable messages");
}

int main(int argc, char **argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    read_options(argc, argv);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    switch (opt.mode) {
    case ROOM: count = opt.connections + 1; break;
    case PAIR: count = 2 * opt.pairs; break;
    case HOLD: count = opt.connections + 2 * opt.pairs; pair_base = opt.connections; break;
    }
    all = allocate((size_t)count * sizeof *all);
    waiting = allocate((size_t)(count + 1) * sizeof *waiting);
    for (int i = 0; i < count; i++) {
        all[i].fd = -1;
        all[i].index = i;
        all[i].is_sender = opt.mode == ROOM ? i == 0 : i >= pair_base && (i - pair_base) % 2 == 0;
    }
    if (opt.mode == PAIR && opt.protocol == PIXIU && !opt.is_live) {
        pairs = allocate((size_t)opt.pairs * sizeof *pairs);
        due_pairs = allocate((size_t)opt.pairs * sizeof *due_pairs);
    }
    read_tokens();
    if (opt.mode == HOLD) run_hold();
    else run_talk();
    return 0;
}
