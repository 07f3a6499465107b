/* The command that appends a batch by the append module, and the reply that says it went as expected.

   The words are those of `store.append.module.append`, in its order; append.c has their meaning. */

#ifndef KETCH_LANE_REDIS_H
#define KETCH_LANE_REDIS_H

#include "bytes.h"

/* What is the same in every append to a partition, packed; see `store.append.module.Parts`. */
typedef struct {
  Span head;  /* MULTI, and KETCH.APPEND or KETCH.TXNAPPEND with its keys */
  Span limit; /* the last id that a record may have, and the sequence bits */
  Span shape; /* what the entries are */
  Span tail;  /* the reads that track the keys again, and EXEC */
  bool records; /* an entry is a record: behind the shape come the base timestamp and no append time */
} Frame;

typedef struct {
  uint64_t ms, seq;
} EntryId;

typedef struct {
  EntryId expected, first;
  int32_t count;
  int64_t producer, now, base_timestamp; /* producer: -1 for none */
  int32_t epoch, last_sequence, first_sequence, end_sequence; /* last: of the batch before this one; end: of this one */
} Append;

static void put_span(Out *out, Span span) { put(out, span.at, span.size); }

static void put_bulk(Out *out, const char *text, int size) {
  char head[24] = "$";
  int length = 1 + digits((uint64_t)size, head + 1);
  memcpy(head + length, "\r\n", 2);
  put(out, head, length + 2);
  put(out, text, size);
  put(out, "\r\n", 2);
}

static void put_number(Out *out, int64_t number) {
  char text[24] = "-";
  bool below = number < 0;
  put_bulk(out, text, below + digits(below ? 0 - (uint64_t)number : (uint64_t)number, text + below));
}

/* Two numbers with a sign between them, and perhaps another one behind. */
static void put_pair(Out *out, uint64_t first, char between, uint64_t second, const char *behind) {
  char text[48];
  int size = digits(first, text), more = (int)strlen(behind);
  text[size++] = between;
  size += digits(second, text + size);
  memcpy(text + size, behind, (size_t)more);
  put_bulk(out, text, size + more);
}

static void put_producer(Out *out, const Append *append) {
  if (append->producer < 0) {
    for (int i = 0; i < 5; i++) put_bulk(out, "", 0);
    return;
  }
  put_number(out, append->producer);
  put_pair(out, (uint64_t)append->epoch, ' ', (uint64_t)append->last_sequence, "");
  put_pair(out, (uint64_t)append->epoch, ' ', (uint64_t)append->end_sequence, "");
  put_number(out, append->now);
  put_pair(out, (uint64_t)append->first_sequence, ':', (uint64_t)append->end_sequence, ":");
}

/* The command up to the batch's bytes, which are the next thing to be put, and `Frame.tail` behind them. */
static void put_append(Out *out, const Frame *frame, const Append *append, int64_t size) {
  put_span(out, frame->head);
  put_pair(out, append->expected.ms, '-', append->expected.seq, "");
  put_pair(out, append->first.ms, '-', append->first.seq, "");
  put_span(out, frame->limit);
  put_number(out, append->count);
  put_number(out, append->expected.ms != 0 || append->expected.seq != 0); /* then there must be a stream */
  put_producer(out, append);
  put_span(out, frame->shape);
  if (frame->records) {
    put_number(out, append->base_timestamp);
    put_bulk(out, "", 0);
  }
  char head[24] = "$";
  int length = 1 + digits((uint64_t)size, head + 1);
  memcpy(head + length, "\r\n", 2);
  put(out, head, length + 2);
}

/* Bytes of the replies to it at `at` where these are whole, and say that the batch was stored as expected; else 0. */
static int64_t landed_reply(const uint8_t *at, const uint8_t *end) {
  static const char begin[] = "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:";
  const int64_t size = sizeof begin - 1;
  if (end - at < size + 3 || memcmp(at, begin, (size_t)size) != 0) return 0;
  const uint8_t *p = at + size;
  while (p < end && *p >= '0' && *p <= '9') p++;
  return p > at + size && end - p >= 2 && p[0] == '\r' && p[1] == '\n' ? p + 2 - at : 0;
}

#endif
