/* Recognises a Fetch request (versions 4 to 16), and makes the response to it. No Python and no I/O.

   Refused are, beside what frame.h refuses: partitions that a session is to forget, followers, isolation levels that
   Kafka does not have, leader epochs above 0, racks beyond ASCII, and bytes behind the request. */

#ifndef KETCH_LANE_FETCH_H
#define KETCH_LANE_FETCH_H

#include "frame.h"

enum { FETCH = 1, FETCH_SESSIONS = 7, FETCH_FLEXIBLE = 12, FETCH_IDS = 13, FETCH_ZSTD = 10 };
enum { WANTED_MAX = 4096 }; /* partitions of a request; a consumer without a session names all of its own */
enum { BATCH_BEGIN = 16 }; /* bytes of a batch that depend on its place: base offset, length, partition leader epoch */

static const Versions FETCH_VERSIONS = {FETCH, 4, 16, FETCH_FLEXIBLE, FETCH_IDS};

typedef struct {
  int32_t index, epoch, most; /* of the partition; epoch: the leader's; most: bytes of its records */
  int64_t offset;
} Wanted;

typedef struct {
  int16_t version;
  int32_t correlation, wait, least, most, session, epoch; /* wait: ms; least, most: bytes of all records */
  Span client;
  bool committed;
  int sections, parts;
  Section section[TOPICS_MAX];
  Wanted part[WANTED_MAX];
} FetchRequest;

static bool take_wanted(Reader *reader, FetchRequest *request) {
  int16_t version = request->version;
  const uint8_t *skipped, *offset;
  if (request->parts == WANTED_MAX) return false;
  Wanted *part = &request->part[request->parts++];
  part->epoch = -1;
  if (!take_32(reader, &part->index) || (version >= 9 && !take_32(reader, &part->epoch))) return false;
  if (part->epoch > 0) return false;
  if (!take_bytes(reader, 8, &offset)) return false;
  part->offset = (int64_t)be64(offset);
  if (version >= FETCH_FLEXIBLE && !take_bytes(reader, 4, &skipped)) return false; /* the epoch that was last fetched */
  if (version >= 5 && !take_bytes(reader, 8, &skipped)) return false;              /* the log start of a follower */
  return take_32(reader, &part->most) && take_no_tags(reader, version >= FETCH_FLEXIBLE);
}

static bool take_fetched(Reader *reader, FetchRequest *request) {
  bool flexible = request->version >= FETCH_FLEXIBLE;
  int32_t count = 0;
  if (request->sections == TOPICS_MAX) return false;
  Section *section = &request->section[request->sections++];
  if (!take_name(reader, request->version >= FETCH_IDS, flexible, &section->name)) return false;
  if (!take_length(reader, flexible, &count) || count < 1) return false;
  section->first = request->parts, section->count = count;
  for (int32_t i = 0; i < count; i++)
    if (!take_wanted(reader, request)) return false;
  return take_no_tags(reader, flexible);
}

static bool take_limits(Reader *reader, FetchRequest *request) {
  int32_t replica = -1;
  const uint8_t *level;
  if (request->version < 15 && (!take_32(reader, &replica) || replica != -1)) return false;
  if (!take_32(reader, &request->wait) || !take_32(reader, &request->least) || !take_32(reader, &request->most))
    return false;
  if (!take_bytes(reader, 1, &level) || *level > 1) return false;
  request->committed = *level;
  request->session = 0, request->epoch = -1;
  if (request->version < FETCH_SESSIONS) return true;
  return take_32(reader, &request->session) && take_32(reader, &request->epoch);
}

/* A client's rack, which nothing goes by; one that may be no text is refused. */
static bool take_rack(Reader *reader, bool flexible) {
  Span rack;
  if (!take_text(reader, flexible, &rack) || rack.at == NULL) return false;
  for (int64_t i = 0; i < rack.size; i++)
    if (rack.at[i] >= 0x80) return false;
  return true;
}

/* Whether `frame`, without its length, is a Fetch request as above. */
static bool recognise_fetch(const uint8_t *frame, int64_t size, FetchRequest *request) {
  Reader reader = {frame, frame + size};
  int32_t count = 0, forgotten = 0;
  request->sections = request->parts = 0;
  if (!take_header(&reader, &FETCH_VERSIONS, &request->version, &request->correlation, &request->client)) return false;
  bool flexible = request->version >= FETCH_FLEXIBLE;
  if (!take_limits(&reader, request) || !take_length(&reader, flexible, &count) || count < 0) return false;
  for (int32_t i = 0; i < count; i++)
    if (!take_fetched(&reader, request)) return false;
  if (request->version >= FETCH_SESSIONS && !take_length(&reader, flexible, &forgotten)) return false;
  if (forgotten != 0) return false;
  if (request->version >= 11 && !take_rack(&reader, flexible)) return false;
  return take_no_tags(&reader, flexible) && reader.at == reader.end;
}

/* -- the response */

static void begin_fetched(Out *out, int16_t version, int32_t correlation, int32_t throttled, int32_t session,
                          int topics) {
  begin_frame(out, version >= FETCH_FLEXIBLE, correlation);
  put_32(out, (uint32_t)throttled);
  if (version >= FETCH_SESSIONS) {
    put_16(out, 0); /* no error */
    put_32(out, (uint32_t)session);
  }
  put_count(out, version >= FETCH_FLEXIBLE, topics);
}

static void put_fetched_topic(Out *out, int16_t version, Span name, int parts) {
  put_topic(out, version >= FETCH_IDS, version >= FETCH_FLEXIBLE, name, parts);
}

/* A partition up to its records, which are the next thing to be put, and `end_fetched_part` behind them. */
static void put_fetched(Out *out, int16_t version, bool committed, int32_t index, int64_t end, int64_t stable,
                        int64_t start, int64_t size) {
  bool flexible = version >= FETCH_FLEXIBLE;
  put_32(out, (uint32_t)index);
  put_16(out, 0); /* no error */
  put_64(out, (uint64_t)end);
  put_64(out, (uint64_t)stable);
  if (version >= 5) put_64(out, (uint64_t)start);
  put_count(out, flexible, committed ? 0 : -1);      /* aborted transactions: none, or null */
  if (version >= 11) put_32(out, UINT32_MAX);        /* no replica is preferred */
  put_count(out, flexible, size);
}

static void end_fetched_part(Out *out, int16_t version) { put_no_tags(out, version >= FETCH_FLEXIBLE); }

static void end_fetched_topic(Out *out, int16_t version) { put_no_tags(out, version >= FETCH_FLEXIBLE); }

/* See `end_frame`. */
static void end_fetched(Out *out, int16_t version, int64_t beside) {
  put_no_tags(out, version >= FETCH_FLEXIBLE);
  end_frame(out, 0, beside);
}

/* The begin of a stored batch at its place. */
static void put_batch_begin(Out *out, int64_t base, int64_t size) {
  put_64(out, (uint64_t)base);
  put_32(out, (uint32_t)(size - 12));
  put_32(out, 0); /* the leader's epoch */
}

#endif
