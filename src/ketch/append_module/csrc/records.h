/* Kafka's records as a batch holds them uncompressed (magic 2, org.apache.kafka.common.record.DefaultRecord), read one by
 * one from bytes that anybody may have sent. No server and no allocation here.
 *
 *     record    length varint | attributes 1 byte | timestamp delta varlong | offset delta varint
 *               | key | value | header count varint | headers
 *     key, value, a header's value    length varint (-1: null) | bytes
 *     header    name length varint | name | value
 *
 *     length of the record         |--------------------- counts from here to the end --------------------|
 *     varint, varlong              zigzag, seven bits a byte, lowest first; at most five and ten bytes
 *
 * Every length is compared with the bytes that are left before anything behind it is touched, and a cursor never moves
 * past its end. What is refused, and the words for it, are those of the broker's kernel (records/_kernel.pyx), which
 * reads the same bytes where there is no module. */

#ifndef KETCH_RECORDS_H
#define KETCH_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { RECORD_MIN = 7 }; /* bytes: length, attributes, timestamp, offset, key, value, headers with one byte each */

typedef struct {
    const uint8_t *at;
    int32_t size; /* -1: null */
} Span;

typedef struct {
    int64_t timestamp;
    Span key;
    Span value;
    const uint8_t *headers;
    const uint8_t *end;
    int32_t header_count;
} Record;

/* A place in the bytes; `at` is NULL once something did not fit. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

static inline uint64_t take_unsigned(Cursor *cursor, int last_shift, uint8_t last_max) {
    uint64_t raw = 0;
    const uint8_t *at = cursor->at;
    for (int shift = 0; at != NULL && at < cursor->end; shift += 7) {
        uint8_t byte = *at++;
        if (shift == last_shift && byte > last_max) break;
        raw |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            cursor->at = at;
            return raw;
        }
    }
    cursor->at = NULL;
    return 0;
}

static inline int64_t take_varlong(Cursor *cursor) {
    uint64_t raw = take_unsigned(cursor, 63, 1);
    return (int64_t)((raw >> 1) ^ (0 - (raw & 1)));
}

static inline int32_t take_varint(Cursor *cursor) {
    if (cursor->at != NULL && cursor->at < cursor->end && *cursor->at < 0x80) { /* nearly always one byte */
        int32_t raw = *cursor->at++;
        return (raw >> 1) ^ -(raw & 1);
    }
    uint32_t raw = (uint32_t)take_unsigned(cursor, 28, 0x0f);
    return (int32_t)((raw >> 1) ^ (0 - (raw & 1)));
}

static inline Span take_span(Cursor *cursor) {
    Span span = {NULL, take_varint(cursor)};
    if (cursor->at == NULL || span.size < -1 || span.size > cursor->end - cursor->at) {
        cursor->at = NULL;
        return span;
    }
    span.at = cursor->at;
    if (span.size > 0) cursor->at += span.size;
    return span;
}

/* A header's name and value; false where they do not fit. */
static inline bool take_header(Cursor *cursor, Span *name, Span *value) {
    *name = take_span(cursor);
    if (cursor->at == NULL || name->size < 0) return false;
    *value = take_span(cursor);
    return cursor->at != NULL;
}

static inline bool headers_fit(const Record *record) {
    Cursor cursor = {record->headers, record->end};
    Span name, value;
    for (int32_t i = 0; i < record->header_count; i++)
        if (!take_header(&cursor, &name, &value)) return false;
    return cursor.at == cursor.end;
}

/* Reads the record at the cursor and moves past it; NULL, or what is wrong with it.
 * A record's offset delta is its place in the batch, `index`. */
static inline const char *take_record(Cursor *cursor, int64_t index, int64_t base_timestamp, Record *record) {
    int32_t size = take_varint(cursor);
    if (cursor->at == NULL || size < RECORD_MIN - 1 || size > cursor->end - cursor->at) return "its length is wrong";
    Cursor within = {cursor->at + 1, cursor->at + size}; /* past the attributes, which hold nothing */
    int64_t timestamp_delta = take_varlong(&within);
    if (within.at == NULL) return "its timestamp delta is not a varlong";
    int32_t offset_delta = take_varint(&within);
    if (within.at == NULL) return "its offset delta cannot be";
    record->key = take_span(&within);
    if (within.at == NULL) return "its key does not fit into it";
    record->value = take_span(&within);
    if (within.at == NULL) return "its value does not fit into it";
    record->header_count = take_varint(&within);
    if (within.at == NULL || record->header_count < 0 || record->header_count > (within.end - within.at) / 2)
        return "its headers do not fit into it exactly";
    if (offset_delta != index) return "its offset delta cannot be";
    record->headers = within.at;
    record->end = within.end;
    if (!headers_fit(record)) return "its headers do not fit into it exactly";
    record->timestamp = (int64_t)((uint64_t)base_timestamp + (uint64_t)timestamp_delta); /* wraps, as Java's long does */
    cursor->at = within.end;
    return NULL;
}

static inline bool same_bytes(Span a, Span b) {
    return a.size == b.size && (a.size <= 0 || memcmp(a.at, b.at, (size_t)a.size) == 0);
}

/* Whether the entries of two records have the same field names in the same order. */
static inline bool same_names(const Record *a, const Record *b) {
    if (a->header_count != b->header_count || (a->key.size < 0) != (b->key.size < 0) ||
        (a->value.size < 0) != (b->value.size < 0))
        return false;
    Cursor left = {a->headers, a->end}, right = {b->headers, b->end};
    Span left_name, right_name, left_value, right_value;
    for (int32_t i = 0; i < a->header_count; i++) {
        if (!take_header(&left, &left_name, &left_value) || !take_header(&right, &right_name, &right_value) ||
            !same_bytes(left_name, right_name) || (left_value.size < 0) != (right_value.size < 0))
            return false;
    }
    return true;
}

#endif
