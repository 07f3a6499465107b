/* Recognises a Produce request (versions 3 to 13) and the header of a RecordBatch v2 in it. No Python and no I/O.

   Refused are, beside what frame.h refuses: bytes behind the request, and a transactional id with batches that are not,
   or the other way round. */

#ifndef KETCH_LANE_REQUEST_H
#define KETCH_LANE_REQUEST_H

#include "frame.h"

enum { PRODUCE = 0, FLEXIBLE = 9, IDS = 13 };
enum { HEADER_SIZE = 61, CHECKED_FROM = 21 }; /* of a batch: its header, and where its checksum begins to cover it */
enum { CODEC = 0x07, CODEC_LAST = 4, TRANSACTIONAL = 0x10 }; /* of a batch's attributes */

static const Versions PRODUCE_VERSIONS = {PRODUCE, 3, 13, FLEXIBLE, IDS};

typedef struct {
  int64_t base_offset, base_timestamp, max_timestamp, producer;
  int32_t length, last_offset_delta, base_sequence, count;
  uint32_t crc;
  int16_t attributes, epoch;
  int8_t magic;
} BatchHead;

typedef struct {
  int32_t index; /* the partition's */
  Span batch;
  BatchHead head;
} Part;

typedef struct {
  int16_t version, acks;
  int32_t correlation, timeout;
  Span client, transaction; /* transaction: the transactional id */
  int sections, parts;
  Section section[TOPICS_MAX];
  Part part[PARTS_MAX];
} ProduceRequest;

static void read_head(const uint8_t *p, BatchHead *head) {
  head->base_offset = (int64_t)be64(p);
  head->length = (int32_t)be32(p + 8);
  head->magic = (int8_t)p[16];
  head->crc = be32(p + 17);
  head->attributes = (int16_t)be16(p + 21);
  head->last_offset_delta = (int32_t)be32(p + 23);
  head->base_timestamp = (int64_t)be64(p + 27);
  head->max_timestamp = (int64_t)be64(p + 35);
  head->producer = (int64_t)be64(p + 43);
  head->epoch = (int16_t)be16(p + 51);
  head->base_sequence = (int32_t)be32(p + 53);
  head->count = (int32_t)be32(p + 57);
}

/* Whether it is one whole batch, with no flags but that of a transaction. Its checksum and records are not looked at. */
static bool is_common_batch(const BatchHead *head, int64_t size, bool transactional) {
  bool whole = (int64_t)head->length + 12 == size && head->magic == 2 && head->base_offset == 0;
  bool counted = head->count >= 1 && head->last_offset_delta == head->count - 1;
  bool sequenced = head->producer < 0 ? !transactional : head->base_sequence >= 0 && head->epoch >= 0;
  bool flagged = (head->attributes & ~CODEC) == (transactional ? TRANSACTIONAL : 0);
  return whole && counted && sequenced && flagged && (head->attributes & CODEC) <= CODEC_LAST;
}

static bool take_part(Reader *reader, ProduceRequest *request) {
  bool flexible = request->version >= FLEXIBLE;
  int32_t size = 0;
  if (request->parts == PARTS_MAX) return false;
  Part *part = &request->part[request->parts++];
  if (!take_32(reader, &part->index) || !take_length(reader, flexible, &size) || size < HEADER_SIZE) return false;
  part->batch.size = size;
  if (!take_bytes(reader, size, &part->batch.at) || !take_no_tags(reader, flexible)) return false;
  read_head(part->batch.at, &part->head);
  return is_common_batch(&part->head, size, request->transaction.at != NULL);
}

static bool take_section(Reader *reader, ProduceRequest *request) {
  bool flexible = request->version >= FLEXIBLE;
  int32_t count = 0;
  if (request->sections == TOPICS_MAX) return false;
  Section *section = &request->section[request->sections++];
  if (!take_name(reader, request->version >= IDS, flexible, &section->name)) return false;
  if (!take_length(reader, flexible, &count)) return false;
  section->first = request->parts, section->count = count;
  if (count < 1) return false;
  for (int32_t i = 0; i < count; i++)
    if (!take_part(reader, request)) return false;
  return take_no_tags(reader, flexible);
}

/* Whether `frame`, without its length, is a Produce request as above. */
static bool recognise(const uint8_t *frame, int64_t size, ProduceRequest *request) {
  Reader reader = {frame, frame + size};
  int32_t count = 0;
  request->sections = request->parts = 0;
  if (!take_header(&reader, &PRODUCE_VERSIONS, &request->version, &request->correlation, &request->client))
    return false;
  bool flexible = request->version >= FLEXIBLE;
  if (!take_text(&reader, flexible, &request->transaction)) return false;
  if (request->transaction.at != NULL && request->transaction.size == 0) return false;
  if (!take_16(&reader, &request->acks) || request->acks < -1 || request->acks > 1) return false;
  if (!take_32(&reader, &request->timeout) || !take_length(&reader, flexible, &count) || count < 1) return false;
  for (int32_t i = 0; i < count; i++)
    if (!take_section(&reader, request)) return false;
  return take_no_tags(&reader, flexible) && reader.at == reader.end;
}

#endif
