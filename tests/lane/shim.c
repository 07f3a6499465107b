/* The lane's C as functions that ctypes can call, and as a program that gives it mutated requests (`FUZZ`).

     shim COUNT SEED FILE...

   mutates the requests in these files COUNT times, and recognises each in a block of memory that ends with it. */

#include <stdio.h>

#include "../../src/ketch/lane/csrc/fetch.h"
#include "../../src/ketch/lane/csrc/redis.h"
#include "../../src/ketch/lane/csrc/response.h"

static ProduceRequest request;
static FetchRequest fetch;

static int64_t place(const uint8_t *frame, Span span) { return span.at == NULL ? -1 : span.at - frame; }

/* Four numbers for each topic; where the next ones go. */
static int64_t *put_sections(int64_t *found, const uint8_t *frame, const Section *section, int count) {
  for (int i = 0; i < count; i++, section++) {
    int64_t topic[] = {place(frame, section->name), section->name.size, section->first, section->count};
    memcpy(found, topic, sizeof topic);
    found += 4;
  }
  return found;
}

/* Writes what was recognised to `found`: ten numbers, four for each topic, eleven for each partition. */
int64_t shim_recognise(const uint8_t *frame, int64_t size, int64_t *found) {
  if (!recognise(frame, size, &request)) return 0;
  int64_t head[] = {request.version, request.acks, request.correlation, request.timeout, place(frame, request.client),
                    request.client.size, place(frame, request.transaction), request.transaction.size, request.sections,
                    request.parts};
  memcpy(found, head, sizeof head);
  found += sizeof head / sizeof *head;
  found = put_sections(found, frame, request.section, request.sections);
  for (int i = 0; i < request.parts; i++) {
    Part *part = &request.part[i];
    BatchHead *of = &part->head;
    int64_t numbers[] = {part->index, place(frame, part->batch), part->batch.size, of->base_timestamp, of->max_timestamp,
                         of->producer, of->epoch, of->base_sequence, of->count, of->attributes, of->crc};
    memcpy(found, numbers, sizeof numbers);
    found += 11;
  }
  return 1;
}

static int64_t given(Out *out, uint8_t *bytes, int64_t room) {
  int64_t size = out->failed || out->size > room ? -1 : out->size;
  if (size > 0) memcpy(bytes, out->data, (size_t)size);
  free(out->data);
  return size;
}

/* The response to a request that is recognised: its n-th batch is stored at `base` + n. */
int64_t shim_response(const uint8_t *frame, int64_t size, int64_t base, int64_t start, uint8_t *bytes, int64_t room) {
  Out out = {0};
  if (!recognise(frame, size, &request)) return -1;
  begin_response(&out, request.version, request.correlation, request.sections);
  for (int i = 0; i < request.sections; i++) {
    Section *section = &request.section[i];
    put_section(&out, request.version, section->name, section->count);
    for (int n = section->first; n < section->first + section->count; n++)
      put_part(&out, request.version, request.part[n].index, base + n, start);
    end_section(&out, request.version);
  }
  end_response(&out, request.version, 0, 0);
  return given(&out, bytes, room);
}

/* Writes what was recognised of a Fetch: twelve numbers, four for each topic, four for each partition. */
int64_t shim_recognise_fetch(const uint8_t *frame, int64_t size, int64_t *found) {
  if (!recognise_fetch(frame, size, &fetch)) return 0;
  int64_t head[] = {fetch.version, fetch.correlation, fetch.wait, fetch.least, fetch.most, fetch.committed,
                    fetch.session, fetch.epoch, place(frame, fetch.client), fetch.client.size, fetch.sections,
                    fetch.parts};
  memcpy(found, head, sizeof head);
  found += sizeof head / sizeof *head;
  found = put_sections(found, frame, fetch.section, fetch.sections);
  for (int i = 0; i < fetch.parts; i++) {
    Wanted *part = &fetch.part[i];
    int64_t numbers[] = {part->index, part->epoch, part->offset, part->most};
    memcpy(found, numbers, sizeof numbers);
    found += 4;
  }
  return 1;
}

/* The response to a Fetch that is recognised: its n-th partition ends at `end` + n, and gives `records`, a batch. */
int64_t shim_fetched(const uint8_t *frame, int64_t size, int64_t end, int64_t start, const uint8_t *records,
                     int64_t length, uint8_t *bytes, int64_t room) {
  Out out = {0};
  if (!recognise_fetch(frame, size, &fetch)) return -1;
  begin_fetched(&out, fetch.version, fetch.correlation, 9, 77, fetch.sections);
  for (int i = 0; i < fetch.sections; i++) {
    Section *section = &fetch.section[i];
    put_fetched_topic(&out, fetch.version, section->name, section->count);
    for (int n = section->first; n < section->first + section->count; n++) {
      put_fetched(&out, fetch.version, fetch.committed, fetch.part[n].index, end + n, end, start, length);
      if (length > 0) {
        put_batch_begin(&out, end + n, length);
        put(&out, records + BATCH_BEGIN, length - BATCH_BEGIN);
      }
      end_fetched_part(&out, fetch.version);
    }
    end_fetched_topic(&out, fetch.version);
  }
  end_fetched(&out, fetch.version, 0);
  return given(&out, bytes, room);
}

/* `parts`: head, limit, shape, tail and data, one behind the other; `sizes`: of each. `numbers`: those of `Append`. */
int64_t shim_append(const uint8_t *parts, const int64_t *sizes, const int64_t *numbers, uint8_t *bytes, int64_t room) {
  Out out = {0};
  Span span[5];
  for (int i = 0; i < 5; parts += sizes[i++]) span[i] = (Span){parts, sizes[i]};
  Frame frame = {span[0], span[1], span[2], span[3], numbers[12]};
  Append append = {{(uint64_t)numbers[0], (uint64_t)numbers[1]}, {(uint64_t)numbers[2], (uint64_t)numbers[3]},
                   (int32_t)numbers[4], numbers[5], numbers[6], numbers[11], (int32_t)numbers[7], (int32_t)numbers[8],
                   (int32_t)numbers[9], (int32_t)numbers[10]};
  put_append(&out, &frame, &append, span[4].size);
  put(&out, span[4].at, span[4].size);
  put(&out, frame.tail.at, frame.tail.size);
  return given(&out, bytes, room);
}

int64_t shim_landed(const uint8_t *reply, int64_t size) { return landed_reply(reply, reply + size); }

#ifdef FUZZ

static uint64_t random_state;

static uint64_t any(uint64_t below) {
  random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
  return random_state % below;
}

static int64_t mutate(uint8_t *bytes, int64_t size) {
  static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff};
  for (uint64_t n = any(4); n > 0; n--) {
    int64_t at = (int64_t)any((uint64_t)(any(2) ? size : size < 96 ? size : 96));
    bytes[at] = any(2) ? telling[any(sizeof telling)] : (uint8_t)any(256);
  }
  return any(4) ? size : (int64_t)any((uint64_t)size + 1);
}

static uint8_t *contents(const char *path, int64_t *size) {
  FILE *file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) exit(2);
  *size = ftell(file);
  uint8_t *bytes = malloc((size_t)*size);
  rewind(file);
  if (bytes == NULL || fread(bytes, 1, (size_t)*size, file) != (size_t)*size) exit(2);
  fclose(file);
  return bytes;
}

int main(int argc, char **argv) {
  long count = atol(argv[1]), recognised = 0;
  random_state = (uint64_t)atol(argv[2]) * 2 + 1;
  int files = argc - 3;
  uint8_t *frames[256];
  int64_t sizes[256], found[12 + 4 * TOPICS_MAX + 11 * PARTS_MAX];
  for (int i = 0; i < files; i++) frames[i] = contents(argv[3 + i], &sizes[i]);
  for (long n = 0; n < count; n++) {
    int which = (int)any((uint64_t)files);
    uint8_t *copy = malloc((size_t)sizes[which] + 1);
    memcpy(copy, frames[which], (size_t)sizes[which]);
    int64_t size = mutate(copy, sizes[which]);
    uint8_t *exact = malloc((size_t)size + (size == 0)), *answer = malloc(1 << 16);
    memcpy(exact, copy, (size_t)size);
    if (shim_recognise(exact, size, found)) {
      recognised++;
      if (shim_response(exact, size, (int64_t)any(1u << 30), 0, answer, 1 << 16) < 0) return 1;
    }
    if (shim_recognise_fetch(exact, size, found)) {
      recognised++;
      if (shim_fetched(exact, size, (int64_t)any(1u << 30), 0, NULL, 0, answer, 1 << 16) < 0) return 1;
    }
    shim_landed(exact, size);
    free(copy), free(exact), free(answer);
  }
  for (int i = 0; i < files; i++) free(frames[i]);
  printf("%ld of %ld\n", recognised, count);
  return 0;
}

#endif
