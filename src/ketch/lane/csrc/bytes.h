/* Bytes in and bytes out: a reader that never passes its end, and a buffer that grows. No Python and no I/O. */

#ifndef KETCH_LANE_BYTES_H
#define KETCH_LANE_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const uint8_t *at; /* NULL where a nullable field is null */
  int64_t size;
} Span;

typedef struct {
  const uint8_t *at, *end;
} Reader;

static inline uint16_t be16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t be32(const uint8_t *p) { return (uint32_t)be16(p) << 16 | be16(p + 2); }
static inline uint64_t be64(const uint8_t *p) { return (uint64_t)be32(p) << 32 | be32(p + 4); }

static inline bool take_bytes(Reader *reader, int64_t size, const uint8_t **bytes) {
  if (size < 0 || size > reader->end - reader->at) return false;
  *bytes = reader->at;
  reader->at += size;
  return true;
}

static inline bool take_16(Reader *reader, int16_t *number) {
  const uint8_t *p;
  if (!take_bytes(reader, 2, &p)) return false;
  *number = (int16_t)be16(p);
  return true;
}

static inline bool take_32(Reader *reader, int32_t *number) {
  const uint8_t *p;
  if (!take_bytes(reader, 4, &p)) return false;
  *number = (int32_t)be32(p);
  return true;
}

/* A varint below 2^31 in its shortest form. Any other form is not for this reader. */
static inline bool take_varint(Reader *reader, int32_t *number) {
  uint32_t value = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    if (reader->at == reader->end) return false;
    uint8_t byte = *reader->at++;
    if (shift == 28 && byte > 7) return false;
    value |= (uint32_t)(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *number = (int32_t)value;
      return byte != 0 || shift == 0;
    }
  }
  return false;
}

/* -- bytes out */

typedef struct {
  uint8_t *data;
  int64_t size, room;
  bool failed; /* there was no memory; what was put is incomplete */
} Out;

static inline bool ensure(Out *out, int64_t more) {
  if (out->room - out->size >= more) return true;
  int64_t room = 2 * out->room + more + 512;
  uint8_t *data = realloc(out->data, (size_t)room);
  if (data == NULL) {
    out->failed = true;
    return false;
  }
  out->data = data, out->room = room;
  return true;
}

static inline void put(Out *out, const void *bytes, int64_t size) {
  if (size <= 0 || !ensure(out, size)) return;
  memcpy(out->data + out->size, bytes, (size_t)size);
  out->size += size;
}

static inline void put_byte(Out *out, uint8_t byte) { put(out, &byte, 1); }

static inline void put_16(Out *out, uint16_t number) {
  uint8_t bytes[] = {(uint8_t)(number >> 8), (uint8_t)number};
  put(out, bytes, 2);
}

static inline void put_32(Out *out, uint32_t number) {
  put_16(out, (uint16_t)(number >> 16));
  put_16(out, (uint16_t)number);
}

static inline void put_64(Out *out, uint64_t number) {
  put_32(out, (uint32_t)(number >> 32));
  put_32(out, (uint32_t)number);
}

static inline void put_varint(Out *out, uint32_t number) {
  for (; number >= 0x80; number >>= 7) put_byte(out, (uint8_t)(number | 0x80));
  put_byte(out, (uint8_t)number);
}

/* Decimal digits of a number at `text`, which has room for 20; how many they are. */
static inline int digits(uint64_t number, char *text) {
  char reversed[20];
  int size = 0;
  do reversed[size++] = (char)('0' + number % 10);
  while (number /= 10);
  for (int i = 0; i < size; i++) text[i] = reversed[size - 1 - i];
  return size;
}

#endif
