/* The entries of one batch, as arguments of the EVAL that replicas and the append-only file get (append.c has the script).
 *
 * These words are all that is made of a batch. The entries are added to the stream from them, too, so a replica's cannot
 * be others. Entries in a row with the same field names make a run, which has the names once:
 *
 *     script 2 stream producers ms seq 2^bits producer state | run | run | ...
 *     |-------------------- HEAD words ---------------------|
 *     run    number of entries, number of fields, the names, then the values of each entry in the order of the names; of
 *            RUN_MAX words or a single entry
 *
 * The fields of a record's entry are those of docs/redis-layout.md, in this order:
 *
 *     key (unless null), value (unless null), timestamp, transaction (of a batch that belongs to one), then header.<name>,
 *     or nullheader.<name> with an empty value
 *
 * Memory grows with the bytes that were read, never by a number in them. */

#ifndef KETCH_BATCH_H
#define KETCH_BATCH_H

#include "text.h"

enum { WORDS_MAX = 1 << 21 }; /* of one batch: 100 MB in strings of the server */
enum { RUN_MAX = 7000 };      /* words: what Lua's stack takes, see UNPACK_MAX */
enum { HEAD = 9, HEAD_ID = 4, HEAD_PRODUCER = 7, HEAD_STATE = 8 };

/* Strings that every batch has. */
static String *replay, *two, *empty, *name_key, *name_value, *name_timestamp, *name_transaction;

/* The entries, and what is replicated of them. */
typedef struct {
    String **words; /* owned from HEAD on, and the one at HEAD_STATE */
    size_t count, room;
    size_t entries, widest; /* widest: words of the XADD with most */
    size_t run, run_entries;
    Record last;
    int64_t rendered; /* the timestamp that `timestamp` shows; NULL: none yet */
    String *timestamp;
    String *transaction; /* "producer:epoch" of the transaction that all records belong to; NULL: of none */
    char *scratch; /* a header's field name */
    size_t scratch_size;
    char error[128];
} Batch;

static void push(Batch *batch, String *word) {
    if (batch->count == batch->room) {
        batch->room = 2 * batch->room;
        batch->words = Realloc(batch->words, batch->room * sizeof *batch->words);
    }
    batch->words[batch->count++] = word;
}

static void push_shared(Batch *batch, String *word) {
    RetainString(NULL, word);
    push(batch, word);
}

static void push_header_name(Batch *batch, Span name, bool null) {
    const char *prefix = null ? "nullheader." : "header.";
    size_t prefix_size = strlen(prefix), size = prefix_size + (size_t)name.size;
    if (size > batch->scratch_size) {
        batch->scratch = Realloc(batch->scratch, 2 * size);
        batch->scratch_size = 2 * size;
    }
    memcpy(batch->scratch, prefix, prefix_size);
    memcpy(batch->scratch + prefix_size, name.at, (size_t)name.size);
    push(batch, CreateString(NULL, batch->scratch, size));
}

static size_t field_count(const Batch *batch, const Record *record) {
    size_t present = 1 + (size_t)(record->key.size >= 0) + (record->value.size >= 0) + (batch->transaction != NULL);
    return (size_t)record->header_count + present;
}

static void close_run(Batch *batch) {
    if (batch->run_entries > 0) batch->words[batch->run] = make_number((long long)batch->run_entries);
}

static void open_run(Batch *batch, const Record *record) {
    close_run(batch);
    batch->run = batch->count;
    batch->run_entries = 0;
    push(batch, NULL);
    push(batch, make_number((long long)field_count(batch, record)));
    if (record->key.size >= 0) push_shared(batch, name_key);
    if (record->value.size >= 0) push_shared(batch, name_value);
    push_shared(batch, name_timestamp);
    if (batch->transaction != NULL) push_shared(batch, name_transaction);
    Cursor cursor = {record->headers, record->end};
    Span name, value;
    for (int32_t i = 0; i < record->header_count && take_header(&cursor, &name, &value); i++)
        push_header_name(batch, name, value.size < 0);
}

static void push_timestamp(Batch *batch, int64_t timestamp) {
    if (batch->timestamp == NULL || timestamp != batch->rendered) {
        if (batch->timestamp != NULL) FreeString(NULL, batch->timestamp);
        batch->timestamp = make_number(timestamp);
        batch->rendered = timestamp;
    }
    push_shared(batch, batch->timestamp);
}

static void push_values(Batch *batch, const Record *record) {
    if (record->key.size >= 0) push(batch, make(record->key));
    if (record->value.size >= 0) push(batch, make(record->value));
    push_timestamp(batch, record->timestamp);
    if (batch->transaction != NULL) push_shared(batch, batch->transaction);
    Cursor cursor = {record->headers, record->end};
    Span name, value;
    for (int32_t i = 0; i < record->header_count && take_header(&cursor, &name, &value); i++) {
        if (value.size < 0)
            push_shared(batch, empty);
        else
            push(batch, make(value));
    }
}

static void push_record(Batch *batch, const Record *record) {
    size_t fields = field_count(batch, record);
    bool full = batch->count - batch->run + fields > RUN_MAX;
    if (batch->run_entries == 0 || full || !same_names(&batch->last, record)) open_run(batch, record);
    push_values(batch, record);
    batch->run_entries++;
    batch->entries++;
    batch->last = *record;
    if (2 * fields > batch->widest) batch->widest = 2 * fields;
}

static bool invalid(Batch *batch, int64_t index, const char *why) {
    if (index < 0)
        snprintf(batch->error, sizeof batch->error, "INVALID %s", why);
    else
        snprintf(batch->error, sizeof batch->error, "INVALID record %" PRId64 " of the batch: %s", index, why);
    return false;
}

/* Makes runs of `count` records; false, with the reason in batch->error, or with "" where there are too many words. */
static bool read_records(Batch *batch, Span bytes, int64_t count, int64_t base_timestamp, const int64_t *append_time) {
    static const char miscounted[] = "the batch does not hold as many records as its header says";
    Cursor cursor = {bytes.at, bytes.at + bytes.size};
    if (count > bytes.size / RECORD_MIN) return invalid(batch, -1, miscounted);
    for (int64_t i = 0; i < count; i++) {
        Record record;
        const char *why = take_record(&cursor, i, base_timestamp, &record);
        if (why != NULL) return invalid(batch, i, why);
        if (append_time != NULL) record.timestamp = *append_time;
        if (batch->count + 2 * field_count(batch, &record) + 2 > WORDS_MAX) return false;
        push_record(batch, &record);
    }
    close_run(batch);
    return cursor.at == cursor.end || invalid(batch, -1, miscounted);
}

static void start_batch(Batch *batch, String *stream, String *producers, size_t room) {
    memset(batch, 0, sizeof *batch);
    batch->room = HEAD + room;
    batch->words = Alloc(batch->room * sizeof *batch->words);
    String *head[HEAD] = {replay, two, stream, producers, NULL, NULL, NULL, empty, empty};
    memcpy(batch->words, head, sizeof head);
    batch->count = HEAD;
}

static void free_batch(Batch *batch) {
    for (size_t i = HEAD; i < batch->count; i++)
        if (batch->words[i] != NULL) FreeString(NULL, batch->words[i]);
    if (batch->words[HEAD_STATE] != NULL && batch->words[HEAD_STATE] != empty) FreeString(NULL, batch->words[HEAD_STATE]);
    if (batch->timestamp != NULL) FreeString(NULL, batch->timestamp);
    if (batch->transaction != NULL) FreeString(NULL, batch->transaction);
    Free(batch->words);
    Free(batch->scratch);
}

/* Goes from entry to entry of a batch: `words` are then the names and values of one, as XADD has them. */
typedef struct {
    const Batch *batch;
    String **words;
    size_t at, number; /* number: of the entries gone by */
    long long left, fields; /* of the run */
} Walk;

static Walk walk(const Batch *batch) {
    return (Walk){batch, Alloc(batch->widest * sizeof(String *)), HEAD, 0, 0, 0};
}

static bool next_entry(Walk *walk) {
    const Batch *batch = walk->batch;
    if (walk->left == 0) {
        if (walk->at == batch->count) return false;
        StringToLongLong(batch->words[walk->at], &walk->left);
        StringToLongLong(batch->words[walk->at + 1], &walk->fields);
        walk->at += 2;
        for (long long i = 0; i < walk->fields; i++) walk->words[2 * i] = batch->words[walk->at++];
    }
    for (long long i = 0; i < walk->fields; i++) walk->words[2 * i + 1] = batch->words[walk->at++];
    walk->left--;
    walk->number++;
    return true;
}

#endif
