/* The response to a Produce request of which every batch was stored. No Python and no I/O. */

#ifndef KETCH_LANE_RESPONSE_H
#define KETCH_LANE_RESPONSE_H

#include "request.h"

static void begin_response(Out *out, int16_t version, int32_t correlation, int sections) {
  begin_frame(out, version >= FLEXIBLE, correlation);
  put_count(out, version >= FLEXIBLE, sections);
}

static void put_section(Out *out, int16_t version, Span name, int parts) {
  put_topic(out, version >= IDS, version >= FLEXIBLE, name, parts);
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

static void end_section(Out *out, int16_t version) { put_no_tags(out, version >= FLEXIBLE); }

/* `throttled`: for how many ms the client is to wait; `start`: where in `out` the response begins. */
static void end_response(Out *out, int16_t version, int32_t throttled, int64_t start) {
  put_32(out, (uint32_t)throttled);
  put_no_tags(out, version >= FLEXIBLE);
  end_frame(out, start, 0);
}

#endif
