/* What requests have in common: their header, and topics by name or by id. No Python and no I/O.

   It recognises no more than what is common: what it refuses may be right all the same, and goes the way of every other
   request. So nothing here makes an error. Refused are: tagged fields, nulls, varints that are longer than they need be,
   and more topics or partitions than an array here takes. */

#ifndef KETCH_LANE_FRAME_H
#define KETCH_LANE_FRAME_H

#include "bytes.h"

enum { TOPICS_MAX = 64, PARTS_MAX = 256 };

/* The versions of an API that are recognised, and since when they have tagged fields, and ids of topics. */
typedef struct {
  int16_t key, oldest, newest, flexible, ids;
} Versions;

typedef struct {
  Span name; /* or the 16 bytes of its id */
  int first, count;
} Section;

static bool take_length(Reader *reader, bool flexible, int32_t *length) {
  if (!flexible) return take_32(reader, length);
  if (!take_varint(reader, length)) return false;
  --*length;
  return true;
}

/* A string or null. */
static bool take_text(Reader *reader, bool flexible, Span *text) {
  int32_t length = 0;
  int16_t small = 0;
  *text = (Span){NULL, 0};
  if (!(flexible ? take_length(reader, true, &length) : take_16(reader, &small))) return false;
  if (!flexible) length = small;
  if (length == -1) return true;
  text->size = length;
  return take_bytes(reader, length, &text->at);
}

static bool take_name(Reader *reader, bool by_id, bool flexible, Span *name) {
  if (!by_id) return take_text(reader, flexible, name) && name->size > 0;
  name->size = 16;
  return take_bytes(reader, 16, &name->at);
}

static bool take_no_tags(Reader *reader, bool flexible) {
  return !flexible || (reader->at < reader->end && *reader->at++ == 0);
}

/* What a request begins with, up to its body. */
static bool take_header(Reader *reader, const Versions *of, int16_t *version, int32_t *correlation, Span *client) {
  int16_t key = 0, length = 0;
  if (!take_16(reader, &key) || key != of->key || !take_16(reader, version)) return false;
  if (*version < of->oldest || *version > of->newest || !take_32(reader, correlation)) return false;
  if (!take_16(reader, &length) || length < -1) return false;
  *client = (Span){NULL, 0};
  if (length >= 0 && !take_bytes(reader, length, &client->at)) return false;
  client->size = length < 0 ? 0 : length;
  return take_no_tags(reader, *version >= of->flexible);
}

/* -- responses */

static void begin_frame(Out *out, bool flexible, int32_t correlation) {
  put_32(out, 0); /* the frame's length, see `end_frame` */
  put_32(out, (uint32_t)correlation);
  if (flexible) put_byte(out, 0); /* the header's tagged fields */
}

/* How many elements an array has. */
static void put_count(Out *out, bool flexible, int64_t count) {
  if (flexible) put_varint(out, (uint32_t)(count + 1));
  else put_32(out, (uint32_t)count);
}

/* A topic, up to its first partition. */
static void put_topic(Out *out, bool by_id, bool flexible, Span name, int parts) {
  if (!by_id && flexible) put_varint(out, (uint32_t)name.size + 1);
  if (!by_id && !flexible) put_16(out, (uint16_t)name.size);
  put(out, name.at, name.size);
  put_count(out, flexible, parts);
}

static void put_no_tags(Out *out, bool flexible) {
  if (flexible) put_byte(out, 0);
}

/* `start`: where in `out` the response begins; `beside`: bytes of it that are written from elsewhere. */
static void end_frame(Out *out, int64_t start, int64_t beside) {
  if (out->failed) return;
  uint32_t size = (uint32_t)(out->size - start - 4 + beside);
  for (int i = 0; i < 4; i++) out->data[start + i] = (uint8_t)(size >> (24 - 8 * i));
}

#endif
