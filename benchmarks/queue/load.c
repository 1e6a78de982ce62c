/*
 * load: a load generator for queue servers. One process, one thread, one epoll.
 *
 * It keeps a fixed number of requests in flight on every connection and sends the next one as soon as an answer
 * is in (closed loop), or sends at a fixed rate (--rate). It speaks three publish protocols, so that every server
 * is measured by the same code, and one subscribe protocol:
 *
 *   smss   Pub of the smss protocol, answered by a 10-byte header
 *   resp   XADD <stream> * d <payload> of Redis and Valkey, answered by a bulk string
 *   nats   PUB <subject> <inbox> <size> of NATS JetStream, answered by a PubAck on the inbox
 *   sub    Sub of the smss protocol: batches are counted, checked and acked
 *
 * Every payload starts with a stamp (source, sequence, time), by which `sub` finds gaps, repeats and disorder.
 * The result is one JSON line on stdout.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
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

enum {
    CARRY_MAX = 16384,       /* the longest incomplete answer that is kept for the next read */
    READ_MAX = 1 << 20,      /* bytes taken from a socket in one read */
    REQUEST_MAX = 1 << 24,   /* the largest request */
    EVENTS_MAX = 256,        /* sockets served between two looks at the clock */
    BUCKETS = 128 + 64 * 34, /* microseconds exact to 128, then 64 steps per power of two */
    STAMP_BYTES = 24,
    STAMP_MAGIC = 0x444c5850,
    ITEM_HEAD = 40,          /* time, event id, next file, next position, content length, header count */
    DRAIN_SECONDS = 5,
};

enum protocol { SMSS, RESP, NATS, SUB };

struct options {
    enum protocol protocol;
    const char *host, *topic, *who;
    int port, connections, in_flight, bytes, topics, pack, batch, source_base, sources, watch_pid;
    double seconds, warmup, rate;
    uint64_t messages;
};

struct connection {
    int fd, index;
    bool open, wants_write, pong_due;
    /* publishing */
    char *out;                    /* requests, rendered once; only the stamps change */
    size_t request_bytes, stamp_at, out_from, out_to;
    uint64_t *sent_at;            /* ring of the times of the requests in flight, oldest first */
    int ring_from, in_flight;
    uint64_t sequence;
    /* reading */
    char *carry;
    size_t carried;
    /* subscribing */
    uint64_t received, body_left, item_left, event_id;
    uint64_t *expected;           /* per source, the sequence that must come next */
    bool done;
};

struct counters {
    uint64_t acked, errors, gaps, repeats, disorder, foreign, frames;
    uint64_t latency[BUCKETS];
    uint64_t latency_max_us;
};

static struct options opt = {
    .protocol = SMSS, .host = "127.0.0.1", .topic = "bench-", .who = "load", .port = 12301, .connections = 1,
    .in_flight = 1, .bytes = 200, .topics = 1, .pack = 1, .batch = 255, .sources = 4096,
};
static struct connection *connections;
static struct counters now_counted;
static uint64_t acked_total, issued, closed_by_server;
static int epoll_fd, open_connections;
static bool issuing = true;
static char read_buffer[CARRY_MAX + READ_MAX];
static char first_error[256];

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
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

/* CPU seconds of all threads of the watched server, from the kernel's clock of that process: the same as utime +
 * stime in /proc/PID/stat, but exact to the nanosecond instead of to 10 ms. */
static double watched_cpu_seconds(void) {
    clockid_t clock;
    struct timespec t;
    if (opt.watch_pid == 0 || clock_getcpuclockid(opt.watch_pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return 0;
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (memory == NULL) die("out of memory");
    return memory;
}

/* ---- latency ------------------------------------------------------------------------------------------------ */

static void count_latency(uint64_t nanos) {
    uint64_t us = nanos / 1000;
    size_t bucket = us;
    if (us > now_counted.latency_max_us) now_counted.latency_max_us = us;
    if (us >= 128) {
        int power = 63 - __builtin_clzll(us);
        bucket = 128 + (size_t)(power - 7) * 64 + ((us >> (power - 6)) & 63);
        if (bucket >= BUCKETS) bucket = BUCKETS - 1;
    }
    now_counted.latency[bucket]++;
}

static uint64_t latency_at(double share) {
    uint64_t total = 0, seen = 0;
    for (size_t i = 0; i < BUCKETS; i++) total += now_counted.latency[i];
    if (total == 0) return 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += now_counted.latency[i];
        if ((double)seen < share * (double)total) continue;
        if (i < 128) return i;
        uint64_t power = 7 + (i - 128) / 64, step = (i - 128) % 64;
        uint64_t upper = ((64 + step + 1) << (power - 6)) - 1;
        return upper < now_counted.latency_max_us ? upper : now_counted.latency_max_us;
    }
    return now_counted.latency_max_us;
}

/* ---- answers ------------------------------------------------------------------------------------------------ */

static uint16_t u16_at(const char *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static uint32_t u32_at(const char *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static uint64_t u64_at(const char *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static void remember_error(const char *text, size_t length) {
    if (first_error[0] != 0) return;
    if (length >= sizeof first_error) length = sizeof first_error - 1;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        first_error[i] = (c < 32 || c == '"' || c == '\\') ? ' ' : c;
    }
}

static void answered(struct connection *c, uint64_t now, bool good) {
    if (c->in_flight == 0) die("connection %d: an answer without a request", c->index);
    uint64_t sent = c->sent_at[c->ring_from];
    c->ring_from = (c->ring_from + 1) % opt.in_flight;
    c->in_flight--;
    if (!good) {
        now_counted.errors++;
        return;
    }
    count_latency(now > sent ? now - sent : 0);
    now_counted.acked += (uint64_t)opt.pack;
    acked_total += (uint64_t)opt.pack;
}

/* Each parser takes the complete answers from the front of `p` and returns how many bytes they had. */

static size_t parse_smss(struct connection *c, const char *p, size_t length, uint64_t now) {
    size_t at = 0;
    while (length - at >= 10) {
        uint16_t code = u16_at(p + at);
        if (code == 200) {
            answered(c, now, true);
        } else if (code == 400) {
            size_t text = u16_at(p + at + 2);
            if (length - at < 10 + text) break;
            remember_error(p + at + 10, text);
            answered(c, now, false);
            at += text;
        } else if (code != 201) {
            die("connection %d: answer with the unknown code %u", c->index, code);
        }
        at += 10;
    }
    return at;
}

static size_t parse_resp(struct connection *c, const char *p, size_t length, uint64_t now) {
    size_t at = 0;
    while (at < length) {
        const char *end = memchr(p + at, '\n', length - at);
        if (end == NULL) break;
        size_t line = (size_t)(end - (p + at)) + 1;
        if (p[at] == '$') {
            long size = strtol(p + at + 1, NULL, 10);
            if (size < 0) die("connection %d: empty answer to XADD", c->index);
            if (length - at < line + (size_t)size + 2) break;
            answered(c, now, true);
            at += line + (size_t)size + 2;
        } else if (p[at] == '-') {
            remember_error(p + at + 1, line - 1);
            answered(c, now, false);
            at += line;
        } else {
            die("connection %d: unexpected answer beginning with '%c'", c->index, p[at]);
        }
    }
    return at;
}

/* "MSG subject sid size" or "HMSG subject sid header-size size": the payload's size is the last word. */
static size_t last_number(const char *line, size_t length) {
    size_t digit = length;
    while (digit > 0 && line[digit - 1] != ' ') digit--;
    return (size_t)strtoul(line + digit, NULL, 10);
}

static size_t parse_nats(struct connection *c, const char *p, size_t length, uint64_t now) {
    size_t at = 0;
    while (at < length) {
        const char *end = memchr(p + at, '\n', length - at);
        if (end == NULL) break;
        const char *line = p + at;
        size_t line_bytes = (size_t)(end - line) + 1;
        if (line[0] == 'M' || line[0] == 'H') {
            size_t size = last_number(line, line_bytes - 2);
            if (length - at < line_bytes + size + 2) break;
            bool good = line[0] == 'M' && memmem(end + 1, size, "\"error\"", 7) == NULL;
            if (!good) remember_error(end + 1, size);
            answered(c, now, good);
            at += line_bytes + size + 2;
            continue;
        }
        if (strncmp(line, "PING", 4) == 0) c->pong_due = true;
        if (strncmp(line, "-ERR", 4) == 0) {
            remember_error(line, line_bytes);
            now_counted.errors++;
        }
        at += line_bytes;
    }
    return at;
}

static void check_stamp(struct connection *c, const char *stamp, uint64_t now) {
    uint32_t source = u32_at(stamp + 4);
    uint64_t sequence = u64_at(stamp + 8), sent = u64_at(stamp + 16);
    if (u32_at(stamp) != STAMP_MAGIC || source >= (uint32_t)opt.sources) {
        now_counted.foreign++;
        return;
    }
    uint64_t expected = c->expected[source];
    if (sequence < expected) {
        now_counted.repeats++;
    } else {
        now_counted.gaps += sequence - expected;
        c->expected[source] = sequence + 1;
    }
    count_latency(now > sent ? now - sent : 0);
}

static void batch_done(struct connection *c) {
    char ack[2] = {0, 0};
    now_counted.frames++;
    c->done = opt.messages > 0 && c->received >= opt.messages;
    ack[0] = c->done ? 1 : 0;
    if (send(c->fd, ack, 2, MSG_NOSIGNAL) != 2) die("subscriber %d: cannot ack: %s", c->index, strerror(errno));
}

static size_t parse_item(struct connection *c, const char *p, size_t length, uint64_t now) {
    if (length < ITEM_HEAD) return 0;
    uint64_t content = u32_at(p + 32), event_id = u64_at(p + 8);
    bool stamped = content >= STAMP_BYTES;
    if (stamped && length < ITEM_HEAD + STAMP_BYTES) return 0;
    if (ITEM_HEAD + content > c->body_left) die("subscriber %d: an item is longer than its batch", c->index);
    if (event_id <= c->event_id) now_counted.disorder++;
    c->event_id = event_id;
    c->received++;
    now_counted.acked++;
    acked_total++;
    if (stamped) check_stamp(c, p + ITEM_HEAD, now); else now_counted.foreign++;
    c->body_left -= ITEM_HEAD;
    c->item_left = content;
    return ITEM_HEAD;
}

static size_t parse_sub(struct connection *c, const char *p, size_t length, uint64_t now) {
    size_t at = 0;
    while (at < length && !c->done) {
        if (c->item_left > 0) {
            size_t take = length - at < c->item_left ? length - at : c->item_left;
            c->item_left -= take;
            c->body_left -= take;
            at += take;
            if (c->body_left == 0) batch_done(c);
            continue;
        }
        if (c->body_left > 0) {
            size_t taken = parse_item(c, p + at, length - at, now);
            if (taken == 0) break;
            at += taken;
            continue;
        }
        if (length - at < 10) break;
        uint16_t code = u16_at(p + at);
        size_t text = code == 400 ? u16_at(p + at + 2) : 0;
        if (length - at < 10 + text) break;
        if (code == 200) {
            c->body_left = u32_at(p + at + 4);
            if (p[at + 2] == 0 || c->body_left < ITEM_HEAD) die("subscriber %d: an empty batch", c->index);
        } else if (code == 400 || code == 255) {
            remember_error(code == 400 ? p + at + 10 : "topic ended", code == 400 ? text : 11);
            now_counted.errors++;
            c->done = true;
        } else if (code != 201) {
            die("subscriber %d: answer with the unknown code %u", c->index, code);
        }
        at += 10 + text;
    }
    return at;
}

static size_t (*const parsers[])(struct connection *, const char *, size_t, uint64_t) = {
    parse_smss, parse_resp, parse_nats, parse_sub,
};

/* ---- sockets ------------------------------------------------------------------------------------------------ */

static void close_connection(struct connection *c) {
    if (!c->open) return;
    close(c->fd);
    c->open = false;
    c->in_flight = 0;
    open_connections--;
}

static void lost_connection(struct connection *c, const char *why) {
    remember_error(why, strlen(why));
    now_counted.errors++;
    closed_by_server++;
    close_connection(c);
}

static void want_write(struct connection *c, bool wanted) {
    if (c->wants_write == wanted) return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
    c->wants_write = wanted;
}

static void flush_out(struct connection *c) {
    while (c->out_from < c->out_to) {
        ssize_t sent = send(c->fd, c->out + c->out_from, c->out_to - c->out_from, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (sent < 0) {
            lost_connection(c, strerror(errno));
            return;
        }
        c->out_from += (size_t)sent;
    }
    want_write(c, c->out_from < c->out_to);
    if (c->out_from < c->out_to) return;
    c->out_from = c->out_to = 0;
    if (c->pong_due && send(c->fd, "PONG\r\n", 6, MSG_NOSIGNAL) == 6) c->pong_due = false;
}

static void put_request(struct connection *c, uint64_t counted_from) {
    uint64_t stamp_time = nanoseconds();
    if (opt.bytes >= STAMP_BYTES) {
        for (int i = 0; i < opt.pack; i++) {
            char *stamp = c->out + c->out_to + c->stamp_at + (size_t)i * (size_t)(opt.bytes + 8);
            memcpy(stamp + 8, &c->sequence, 8);
            memcpy(stamp + 16, &stamp_time, 8);
            c->sequence++;
        }
    }
    c->sent_at[(c->ring_from + c->in_flight) % opt.in_flight] = counted_from != 0 ? counted_from : stamp_time;
    c->in_flight++;
    c->out_to += c->request_bytes;
    issued += (uint64_t)opt.pack;
}

static bool may_issue(const struct connection *c) {
    return issuing && c->open && c->in_flight < opt.in_flight && (opt.messages == 0 || issued < opt.messages);
}

/* Closed loop: fill the free slots of a connection, all in one write. A connection whose socket is full waits. */
static void refill(struct connection *c) {
    if (!c->open || c->out_from < c->out_to) return;
    while (may_issue(c)) put_request(c, 0);
    if (c->out_to > 0 || c->pong_due) flush_out(c);
}

/* Fixed rate: what is due by now goes to the connections in turn. Latency counts from the time a message was due,
 * so a server that stalls pays for everything that should have been sent meanwhile. */
static void issue_due(uint64_t started, uint64_t now) {
    static int next;
    static uint64_t due_sent;
    uint64_t due = (uint64_t)(opt.rate * (double)(now - started) / 1e9);
    for (int tries = 0; due_sent < due && tries < opt.connections; next = (next + 1) % opt.connections) {
        struct connection *c = &connections[next];
        bool fits = c->out_from == 0 && c->out_to + c->request_bytes <= c->request_bytes * (size_t)opt.in_flight;
        if (!fits || !may_issue(c)) {
            tries++;
            continue;
        }
        tries = 0;
        put_request(c, started + (uint64_t)((double)due_sent * 1e9 / opt.rate));
        due_sent += (uint64_t)opt.pack;
    }
    for (int i = 0; i < opt.connections; i++)
        if (connections[i].open && connections[i].out_to > 0) flush_out(&connections[i]);
}

static void on_readable(struct connection *c) {
    memcpy(read_buffer, c->carry, c->carried);
    ssize_t got = recv(c->fd, read_buffer + c->carried, READ_MAX, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        lost_connection(c, got == 0 ? "connection closed by the server" : strerror(errno));
        return;
    }
    size_t length = c->carried + (size_t)got;
    size_t taken = parsers[opt.protocol](c, read_buffer, length, nanoseconds());
    c->carried = length - taken;
    if (c->carried > CARRY_MAX) die("connection %d: an answer of more than %d bytes", c->index, CARRY_MAX);
    memcpy(c->carry, read_buffer + taken, c->carried);
    if (c->done) close_connection(c);
}

/* ---- setting up --------------------------------------------------------------------------------------------- */

static void topic_name(char *name, size_t size, int connection) {
    snprintf(name, size, "%s%d", opt.topic, connection % opt.topics);
}

static size_t render_smss(char *out, const char *name) {
    uint16_t name_bytes = (uint16_t)strlen(name);
    uint32_t content = (uint32_t)opt.bytes, payload = (uint32_t)opt.pack * (8 + content);
    memset(out, 0, 20);
    out[0] = 1;
    memcpy(out + 1, &name_bytes, 2);
    memcpy(out + 3, &payload, 4);
    memcpy(out + 20, name, name_bytes);
    char *message = out + 20 + name_bytes;
    for (int i = 0; i < opt.pack; i++, message += 8 + content) {
        memcpy(message, &content, 4);
        memset(message + 4, 0, 4);
        memset(message + 8, 'x', content);
    }
    return 20 + name_bytes + 8; /* where the first body starts */
}

static size_t render_head(char *out, size_t size, const char *name, int connection) {
    if (opt.protocol == RESP)
        return (size_t)snprintf(out, size, "*5\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$1\r\nd\r\n$%d\r\n",
                                strlen(name), name, opt.bytes);
    return (size_t)snprintf(out, size, "PUB %s _I.%d.%d %d\r\n", name, getpid(), connection, opt.bytes);
}

/* Renders one request and copies it once per slot, so that sending is patching stamps and one write. */
static void render_requests(struct connection *c) {
    char name[160];
    topic_name(name, sizeof name, c->index);
    size_t one = 20 + sizeof name + (size_t)opt.pack * (size_t)(opt.bytes + 8) + 128;
    if (one > REQUEST_MAX) die("a request would have more than %d bytes", REQUEST_MAX);
    char *request = allocate(one);
    if (opt.protocol == SMSS) {
        c->stamp_at = render_smss(request, name);
        c->request_bytes = c->stamp_at - 8 + (size_t)opt.pack * (size_t)(opt.bytes + 8);
    } else {
        c->stamp_at = render_head(request, one, name, c->index);
        memset(request + c->stamp_at, 'x', (size_t)opt.bytes);
        memcpy(request + c->stamp_at + opt.bytes, "\r\n", 2);
        c->request_bytes = c->stamp_at + (size_t)opt.bytes + 2;
    }
    if (opt.bytes >= STAMP_BYTES) {
        uint32_t magic = STAMP_MAGIC, source = (uint32_t)(opt.source_base + c->index);
        for (int i = 0; i < opt.pack; i++) {
            char *stamp = request + c->stamp_at + (size_t)i * (size_t)(opt.bytes + 8);
            memcpy(stamp, &magic, 4);
            memcpy(stamp + 4, &source, 4);
        }
    }
    c->out = allocate(c->request_bytes * (size_t)opt.in_flight);
    for (int i = 0; i < opt.in_flight; i++) memcpy(c->out + (size_t)i * c->request_bytes, request, c->request_bytes);
    free(request);
    c->sent_at = allocate(sizeof *c->sent_at * (size_t)opt.in_flight);
}

static void send_all(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent <= 0) die("cannot send: %s", strerror(errno));
        bytes += sent;
        length -= (size_t)sent;
    }
}

static void greet_nats(struct connection *c) {
    char text[512];
    size_t have = 0;
    int length = snprintf(text, sizeof text,
                          "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,"
                          "\"name\":\"load\"}\r\nSUB _I.%d.%d 1\r\nPING\r\n", getpid(), c->index);
    send_all(c->fd, text, (size_t)length);
    while (memmem(c->carry, have, "PONG\r\n", 6) == NULL) {
        if (have == CARRY_MAX) die("connection %d: no PONG from the NATS server", c->index);
        ssize_t got = recv(c->fd, c->carry + have, CARRY_MAX - have, 0);
        if (got <= 0) die("connection %d: no answer from the NATS server", c->index);
        have += (size_t)got;
    }
}

static void send_subscribe(struct connection *c) {
    char name[160], who[160], request[512] = {0};
    topic_name(name, sizeof name, c->index);
    snprintf(who, sizeof who, "%s-%d", opt.who, c->index);
    uint16_t name_bytes = (uint16_t)strlen(name);
    uint32_t who_bytes = (uint32_t)strlen(who);
    uint64_t event_id = 0, ack_timeout = 30000000000ull;
    memcpy(request + 1, &name_bytes, 2);
    request[3] = (char)opt.batch;
    request[4] = 1;
    char *p = request + 20;
    memcpy(p, name, name_bytes), p += name_bytes;
    memcpy(p, &event_id, 8), p += 8;
    memcpy(p, &ack_timeout, 8), p += 8;
    memcpy(p, &who_bytes, 4), p += 4;
    memcpy(p, who, who_bytes), p += who_bytes;
    send_all(c->fd, request, (size_t)(p - request));
}

static void open_connection(struct connection *c, int index) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    struct timeval patience = {.tv_sec = 10};
    int one = 1;
    if (inet_pton(AF_INET, opt.host, &address.sin_addr) != 1) die("not an IPv4 address: %s", opt.host);
    c->index = index;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("cannot open socket %d: %s", index, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect to %s:%d (connection %d): %s", opt.host, opt.port, index, strerror(errno));
    c->carry = allocate(CARRY_MAX);
    if (opt.protocol == SUB) c->expected = allocate(sizeof(uint64_t) * (size_t)opt.sources);
    else render_requests(c);
    if (opt.protocol == NATS) greet_nats(c);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event) != 0) die("epoll: %s", strerror(errno));
    c->open = true;
    open_connections++;
}

/* ---- the run ------------------------------------------------------------------------------------------------ */

struct window {
    uint64_t started, ended;
    double own_cpu, watched_cpu;
};

/* Speed and latency start anew after the warm-up; errors, gaps and repeats are never forgotten. */
static void begin(struct window *w, uint64_t now) {
    now_counted.acked = now_counted.frames = now_counted.latency_max_us = 0;
    memset(now_counted.latency, 0, sizeof now_counted.latency);
    *w = (struct window){.started = now, .own_cpu = own_cpu_seconds(), .watched_cpu = watched_cpu_seconds()};
}

static void end(struct window *w, uint64_t now) {
    w->ended = now;
    w->own_cpu = own_cpu_seconds() - w->own_cpu;
    w->watched_cpu = watched_cpu_seconds() - w->watched_cpu;
}

static int requests_in_flight(void) {
    int total = 0;
    for (int i = 0; i < opt.connections; i++) total += connections[i].in_flight;
    return total;
}

static void serve_sockets(int timeout_ms) {
    struct epoll_event events[EVENTS_MAX];
    int ready = epoll_wait(epoll_fd, events, EVENTS_MAX, timeout_ms);
    for (int i = 0; i < ready; i++) {
        struct connection *c = events[i].data.ptr;
        if (c->open && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) on_readable(c);
        if (c->open && (events[i].events & EPOLLOUT)) flush_out(c);
        if (opt.protocol != SUB && opt.rate == 0) refill(c);
    }
}

static bool all_acked(void) {
    return opt.protocol != SUB && opt.messages > 0 && issued >= opt.messages && requests_in_flight() == 0;
}

/* Runs to the end of the time or of the messages; then waits a little for the answers still under way, which are
 * not counted as speed but in `acked_total`. */
static void run(struct window *w) {
    uint64_t first = nanoseconds(), now = first;
    uint64_t warm = first + (uint64_t)(opt.warmup * 1e9), deadline = warm + (uint64_t)(opt.seconds * 1e9);
    bool counting = false;
    begin(w, now);
    for (int i = 0; i < opt.connections; i++) {
        if (opt.protocol == SUB) send_subscribe(&connections[i]);
        else if (opt.rate == 0) refill(&connections[i]);
    }
    while (open_connections > 0 && now < deadline && !all_acked()) {
        if (opt.rate > 0 && opt.protocol != SUB) issue_due(first, now);
        serve_sockets(opt.rate > 0 ? 1 : 50);
        now = nanoseconds();
        if (!counting && opt.warmup > 0 && now >= warm) {
            counting = true;
            begin(w, now);
        }
    }
    end(w, now);
    struct counters counted = now_counted;
    issuing = false;
    uint64_t patience = now + DRAIN_SECONDS * 1000000000ull;
    while (opt.protocol != SUB && open_connections > 0 && requests_in_flight() > 0 && now < patience) {
        serve_sockets(50);
        now = nanoseconds();
    }
    counted.errors = now_counted.errors;
    now_counted = counted;
}

static void report(const struct window *w) {
    static const char *const names[] = {"smss", "resp", "nats", "sub"};
    double seconds = (double)(w->ended - w->started) / 1e9;
    uint64_t least = UINT64_MAX, most = 0;
    for (int i = 0; i < opt.connections; i++) {
        if (connections[i].received < least) least = connections[i].received;
        if (connections[i].received > most) most = connections[i].received;
    }
    printf("{\"protocol\":\"%s\",\"connections\":%d,\"in_flight\":%d,\"bytes\":%d,", names[opt.protocol],
           opt.connections, opt.in_flight, opt.bytes);
    printf("\"acked\":%lu,\"acked_total\":%lu,\"issued\":%lu,\"unanswered\":%d,\"errors\":%lu,\"closed\":%lu,",
           now_counted.acked, acked_total, issued, requests_in_flight(), now_counted.errors, closed_by_server);
    printf("\"seconds\":%.6f,\"per_second\":%.1f,", seconds, seconds > 0 ? (double)now_counted.acked / seconds : 0);
    printf("\"p50_us\":%lu,\"p99_us\":%lu,\"p999_us\":%lu,\"max_us\":%lu,", latency_at(0.5), latency_at(0.99),
           latency_at(0.999), now_counted.latency_max_us);
    printf("\"cpu_seconds\":%.4f,\"cpu_share\":%.4f,\"server_cpu_seconds\":%.4f,", w->own_cpu,
           seconds > 0 ? w->own_cpu / seconds : 0, w->watched_cpu);
    if (opt.protocol == SUB)
        printf("\"batches\":%lu,\"least\":%lu,\"most\":%lu,\"gaps\":%lu,\"repeats\":%lu,\"disorder\":%lu,"
               "\"foreign\":%lu,", now_counted.frames, least, most, now_counted.gaps, now_counted.repeats,
               now_counted.disorder, now_counted.foreign);
    printf("\"first_error\":\"%s\"}\n", first_error);
}

/* ---- the command line --------------------------------------------------------------------------------------- */

static const char usage[] =
    "usage: load --protocol smss|resp|nats|sub [options]\n"
    "  --host A --port N        where the server listens (127.0.0.1:12301)\n"
    "  --connections N          connections, or subscribers with `sub` (1)\n"
    "  --in-flight N            requests in flight per connection (1)\n"
    "  --bytes N                payload of a message (200; below 24 it carries no stamp)\n"
    "  --pack N                 messages per Pub, smss only (1)\n"
    "  --seconds S              how long at most (5, or 3600 with --messages)\n"
    "  --messages N             how many at most: in all, or per subscriber with `sub`\n"
    "  --warmup S               seconds that are run but not counted (0)\n"
    "  --rate N                 messages per second in all, instead of as fast as answers come\n"
    "  --topics N --topic NAME  connection i uses the topic NAME followed by i modulo N (1, bench-)\n"
    "  --batch N --who NAME     of a subscriber (255, load)\n"
    "  --source-base N          number of the first connection in the stamps (0)\n"
    "  --sources N              numbers that `sub` knows (4096)\n"
    "  --watch-pid PID          also report this process's CPU seconds\n";

static long number(const char *text, const char *name, long least, long most) {
    char *rest;
    long value = strtol(text, &rest, 10);
    if (*rest != 0 || rest == text || value < least || value > most)
        die("--%s must be a number from %ld to %ld, not '%s'", name, least, most, text);
    return value;
}

static double amount(const char *text, const char *name) {
    char *rest;
    double value = strtod(text, &rest);
    if (*rest != 0 || rest == text || !(value >= 0) || value > 1e9)
        die("--%s must be a number from 0 to 1e9, not '%s'", name, text);
    return value;
}

static enum protocol protocol_named(const char *name) {
    static const char *const names[] = {"smss", "resp", "nats", "sub"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0) return (enum protocol)i;
    die("--protocol must be smss, resp, nats or sub, not '%s'", name);
    return SMSS;
}

static void read_options(int count, char **words) {
    static const struct option known[] = {
        {"protocol", 1, 0, 'p'}, {"host", 1, 0, 'h'}, {"port", 1, 0, 'P'}, {"connections", 1, 0, 'c'},
        {"in-flight", 1, 0, 'f'}, {"bytes", 1, 0, 'b'}, {"pack", 1, 0, 'k'}, {"seconds", 1, 0, 's'},
        {"messages", 1, 0, 'm'}, {"warmup", 1, 0, 'w'}, {"rate", 1, 0, 'r'}, {"topics", 1, 0, 't'},
        {"topic", 1, 0, 'T'}, {"batch", 1, 0, 'B'}, {"who", 1, 0, 'W'}, {"source-base", 1, 0, 'S'},
        {"sources", 1, 0, 'N'}, {"watch-pid", 1, 0, 'i'}, {"help", 0, 0, 'H'}, {0, 0, 0, 0},
    };
    int choice;
    while ((choice = getopt_long(count, words, "", known, NULL)) != -1) switch (choice) {
        case 'p': opt.protocol = protocol_named(optarg); break;
        case 'h': opt.host = optarg; break;
        case 'P': opt.port = (int)number(optarg, "port", 1, 65535); break;
        case 'c': opt.connections = (int)number(optarg, "connections", 1, 100000); break;
        case 'f': opt.in_flight = (int)number(optarg, "in-flight", 1, 100000); break;
        case 'b': opt.bytes = (int)number(optarg, "bytes", 1, REQUEST_MAX / 2); break;
        case 'k': opt.pack = (int)number(optarg, "pack", 1, 100000); break;
        case 's': opt.seconds = amount(optarg, "seconds"); break;
        case 'm': opt.messages = (uint64_t)number(optarg, "messages", 1, 1000000000000); break;
        case 'w': opt.warmup = amount(optarg, "warmup"); break;
        case 'r': opt.rate = amount(optarg, "rate"); break;
        case 't': opt.topics = (int)number(optarg, "topics", 1, 1000000); break;
        case 'T': opt.topic = optarg; break;
        case 'B': opt.batch = (int)number(optarg, "batch", 1, 255); break;
        case 'W': opt.who = optarg; break;
        case 'S': opt.source_base = (int)number(optarg, "source-base", 0, 1000000); break;
        case 'N': opt.sources = (int)number(optarg, "sources", 1, 1000000); break;
        case 'i': opt.watch_pid = (int)number(optarg, "watch-pid", 1, 1 << 30); break;
        case 'H': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
    }
    if (optind != count) die("unexpected word '%s'; --help lists the options", words[optind]);
    if (opt.seconds == 0) opt.seconds = opt.messages > 0 ? 3600 : 5;
    if (opt.pack > 1 && opt.protocol != SMSS) die("--pack is for --protocol smss only");
    if (strlen(opt.topic) > 100 || strlen(opt.who) > 100) die("--topic and --who have at most 100 bytes");
}

int main(int count, char **words) {
    struct window window;
    read_options(count, words);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* never outlives the harness that started it */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) die("epoll: %s", strerror(errno));
    connections = allocate(sizeof *connections * (size_t)opt.connections);
    for (int i = 0; i < opt.connections; i++) open_connection(&connections[i], i);
    run(&window);
    report(&window);
    return 0;
}
