/* Redis streams as fast as one connection takes them: the yardstick.
 *
 *   raw produce SOCKET KEY COUNT SIZE     XADD KEY * value <SIZE bytes> timestamp <ms>, pipelined, WINDOW in flight
 *   raw consume SOCKET KEY COUNT          XRANGE KEY (last + COUNT PAGE, until COUNT records have come
 *
 * Prints the seconds it took. Exits with 1 and a sentence when Redis answers with an error or records are missing.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

enum { WINDOW = 10000, PAGE = 5000, BLOCK = 1000, BUFFER = 1 << 20 };

static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static void *room(void *old, size_t size)
{
    void *p = realloc(old, size);
    if (!p)
        die("no memory");
    return p;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        die("%s: %s", path, strerror(errno));
    return fd;
}

/* Replies of XADD: two lines each, the first of which is no error. */
static long count_replies(const char *p, size_t size, int *line, int *start)
{
    long replies = 0;
    const char *end = p + size;
    while (p < end) {
        if (*start && *line == 0 && *p == '-')
            die("Redis: %.*s", (int)strcspn(p, "\r"), p);
        const char *newline = memchr(p, '\n', end - p);
        *start = newline != NULL;
        if (!newline)
            break;
        replies += *line;
        *line ^= 1;
        p = newline + 1;
    }
    return replies;
}

/* BLOCK commands back to back; their ends in `ends`. */
static char *build(const char *key, long size, size_t *ends)
{
    struct timeval t;
    gettimeofday(&t, NULL);
    char *block = room(NULL, BLOCK * (size + strlen(key) + 160)), *p = block;
    for (int i = 0; i < BLOCK; i++) {
        p += sprintf(p, "*7\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$5\r\nvalue\r\n$%ld\r\n", strlen(key), key, size);
        for (long j = 0; j < size; j++)
            *p++ = 'a' + (i + j * 7) % 26;
        p += sprintf(p, "\r\n$9\r\ntimestamp\r\n$13\r\n%013lld\r\n", t.tv_sec * 1000LL + t.tv_usec / 1000);
        ends[i] = p - block;
    }
    return block;
}

static void produce(int fd, const char *key, long count, long size)
{
    size_t ends[BLOCK], at = 0;
    char *block = build(key, size, ends), *replies = room(NULL, BUFFER);
    long sent = 0, answered = 0; /* commands of which at least a byte is out; whole replies */
    int line = 0, start = 1;
    while (answered < count) {
        /* As much of the block as window and count allow. */
        int first = sent % BLOCK;
        long may = WINDOW - (sent - answered);
        if (may > count - sent)
            may = count - sent;
        if (may > BLOCK - first)
            may = BLOCK - first;
        size_t stop = may > 0 ? ends[first + may - 1] : at;
        struct pollfd p = {.fd = fd, .events = POLLIN | (stop > at ? POLLOUT : 0)};
        if (poll(&p, 1, -1) < 0)
            die("poll: %s", strerror(errno));
        if (p.revents & POLLOUT) {
            ssize_t n = send(fd, block + at, stop - at, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN)
                die("send: %s", strerror(errno));
            at += n > 0 ? n : 0;
            while (first < BLOCK && ends[first] <= at)
                first++, sent++;
            if (first == BLOCK)
                at = 0;
        }
        if (p.revents & (POLLIN | POLLHUP)) {
            ssize_t n = recv(fd, replies, BUFFER - 1, 0);
            if (n <= 0)
                die("Redis closed the connection");
            replies[n] = 0;
            answered += count_replies(replies, n, &line, &start);
        }
    }
}

/* What is received and not yet read. */
static struct {
    int fd;
    size_t at, end;
    char data[BUFFER];
} in;

static void fill(void)
{
    if (in.at > BUFFER / 2 || in.end == BUFFER) {
        memmove(in.data, in.data + in.at, in.end - in.at);
        in.end -= in.at;
        in.at = 0;
    }
    ssize_t n = recv(in.fd, in.data + in.end, BUFFER - in.end, 0);
    if (n <= 0)
        die("Redis closed the connection, or an entry is larger than %d bytes", BUFFER);
    in.end += n;
}

/* The number in the head of an array or string at `*at`, which moves behind its line; -1 when that is not whole. */
static long head(size_t *at)
{
    const char *line = in.data + *at, *newline = memchr(line, '\n', in.end - *at);
    if (!newline)
        return -1;
    if (*line == '-')
        die("Redis: %.*s", (int)(newline - line), line);
    *at = newline + 1 - in.data;
    return strtol(line + 1, NULL, 10);
}

/* Passes one entry, *2 $id *n fields, and copies its id; 0 when it is not whole. */
static int pass_entry(char *id)
{
    size_t at = in.at;
    long size = head(&at) < 0 ? -1 : head(&at);
    if (size < 0 || in.end - at < (size_t)size + 2)
        return 0;
    const char *start = in.data + at;
    at += size + 2;
    long fields = head(&at);
    if (fields < 0)
        return 0;
    while (fields--) {
        long n = head(&at);
        if (n < 0 || in.end - at < (size_t)n + 2)
            return 0;
        at += n + 2;
    }
    snprintf(id, 48, "%.*s", (int)size, start);
    in.at = at;
    return 1;
}

static void consume(int fd, const char *key, long count)
{
    char id[48] = "", command[4096];
    in.fd = fd;
    for (long seen = 0, entries; seen < count; seen += entries) {
        char from[50] = "-";
        if (seen)
            snprintf(from, sizeof from, "(%s", id);
        int n = snprintf(command, sizeof command,
                         "*6\r\n$6\r\nXRANGE\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$1\r\n+\r\n$5\r\nCOUNT\r\n$4\r\n%d\r\n",
                         strlen(key), key, strlen(from), from, PAGE);
        if (send(fd, command, n, MSG_NOSIGNAL) != n)
            die("send: %s", strerror(errno));
        while ((entries = head(&in.at)) < 0)
            fill();
        if (entries == 0)
            die("%ld records instead of %ld", seen, count);
        for (long i = 0; i < entries; i++)
            while (!pass_entry(id))
                fill();
    }
}

int main(int argc, char **argv)
{
    if (argc < 5)
        die("usage: raw produce SOCKET KEY COUNT SIZE | raw consume SOCKET KEY COUNT");
    int fd = connect_to(argv[2]);
    double begin = now();
    if (!strcmp(argv[1], "produce") && argc == 6)
        produce(fd, argv[3], atol(argv[4]), atol(argv[5]));
    else if (!strcmp(argv[1], "consume"))
        consume(fd, argv[3], atol(argv[4]));
    else
        die("no such way to run: %s", argv[1]);
    printf("%.6f\n", now() - begin);
    return 0;
}
