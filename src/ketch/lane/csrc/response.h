/* The response to a Produce request of which every batch was stored. No Python and no I/O. */

#ifndef KETCH_LANE_RESPONSE_H
#define KETCH_LANE_RESPONSE_H

#include "request.h"

static void begin_response(Out *out, int16_t version, int32_t correlation, int sections) {
  put_32(out, 0); /* the frame's length, see `end_response` */
  put_32(out, (uint32_t)correlation);
  if (version >= FLEXIBLE) {
    put_byte(out, 0); /* the header's tagged fields */
    put_varint(out, (uint32_t)sections + 1);
  } else {
    put_32(out, (uint32_t)sections);
  }
}

static void put_section(Out *out, int16_t version, Span name, int parts) {
  if (version >= FLEXIBLE) {
    if (version < IDS) put_varint(out, (uint32_t)name.size + 1);
    put(out, name.at, name.size);
    put_varint(out, (uint32_t)parts + 1);
  } else {
    put_16(out, (uint16_t)name.size);
    put(out, name.at, name.size);
    put_32(out, (uint32_t)parts);
  }
}

static void put_part(Out *out, int16_t version, int32_t index, int64_t base, int64_t log_start) {
  put_32(out, (uint32_t)index);
  put_16(out, 0);            /* no error */
  put_64(out, (uint64_t)base);
  put_64(out, UINT64_MAX);   /* no log append time */
  if (version >= 5) put_64(out, (uint64_t)log_start);
  if (version >= FLEXIBLE) {
    put_byte(out, 1);        /* no records with errors */
    put_byte(out, 0);        /* no message */
    put_byte(out, 0);        /* no tagged fields */
  } else if (version >= 8) {
    put_32(out, 0);
    put_16(out, UINT16_MAX);
  }
}

static void end_section(Out *out, int16_t version) {
  if (version >= FLEXIBLE) put_byte(out, 0);
}

/* `throttled`: for how many ms the client is to wait; `start`: where in `out` the response begins. */
static void end_response(Out *out, int16_t version, int32_t throttled, int64_t start) {
  put_32(out, (uint32_t)throttled);
  if (version >= FLEXIBLE) put_byte(out, 0);
  if (out->failed) return;
  uint32_t size = (uint32_t)(out->size - start - 4);
  for (int i = 0; i < 4; i++) out->data[start + i] = (uint8_t)(size >> (24 - 8 * i));
}

#endif
