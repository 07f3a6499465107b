/* The state of an idempotent producer (KIP-98): the text that store/lua/producer.lua compares and writes.
 *
 *     epoch last_sequence updated_ms first:last:id first:last:id ...    up to five batches, the oldest first */

#ifndef KETCH_PRODUCER_H
#define KETCH_PRODUCER_H

#include "text.h"

static bool is_space(uint8_t byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

/* The next word of a text: NULL at its end. */
static Span next_word(Span *rest) {
    while (rest->size > 0 && is_space(*rest->at)) rest->at++, rest->size--;
    Span word = {rest->size > 0 ? rest->at : NULL, 0};
    while (rest->size > 0 && !is_space(*rest->at)) rest->at++, rest->size--, word.size++;
    return word;
}

/* `first:last:id`, none of them empty. */
static bool is_batch(Span word) {
    int32_t colons = 0, since = 0;
    for (int32_t i = 0; i < word.size; i++) {
        bool colon = word.at[i] == ':' && since > 0 && colons < 2;
        colons += colon;
        since = colon ? 0 : since + 1;
    }
    return colons == 2 && since > 0;
}

/* Whether a text begins with two words, one blank between them, that are `head`; or has none, and `head` is empty. */
static bool begins_with(Span state, Span head) {
    Span rest = state, first = next_word(&rest);
    bool blank = rest.size > 1 && *rest.at == ' ' && !is_space(rest.at[1]);
    Span second = next_word(&rest);
    Span found = {state.at, 0};
    if (first.at == state.at && first.size > 0 && blank) found.size = (int32_t)(second.at + second.size - state.at);
    return same_bytes(found, head);
}

typedef struct {
    char *at;
    size_t size;
} Text;

static void put(Text *to, Span span) {
    if (span.size == 0) return; /* `at` may be NULL */
    memcpy(to->at + to->size, span.at, (size_t)span.size);
    to->size += (size_t)span.size;
}

/* The arguments that move a producer's state along with its batch. */
typedef struct {
    String *id; /* NULL: there is no producer */
    String *expected, *head, *now, *sequences;
} Producer;

/* The state after a batch: the last four batches before it stay while the epoch is the same. */
static String *moved(const Producer *producer, Span state, EntryId first) {
    String *entry = make_id(first);
    Span blank = {(const uint8_t *)" ", 1}, kept[4] = {{NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}};
    Span head = text(producer->head), now = text(producer->now), batch = text(producer->sequences), id = text(entry);
    Span rest = state, head_rest = head, epoch = next_word(&head_rest);
    if (state.size > 0 && !is_space(*state.at) && same_bytes(next_word(&rest), epoch)) {
        for (Span word = next_word(&rest); word.size > 0; word = next_word(&rest)) {
            if (!is_batch(word)) continue;
            memmove(kept, kept + 1, 3 * sizeof *kept);
            kept[3] = word;
        }
    }
    Text moved = {Alloc((size_t)head.size + (size_t)now.size + (size_t)state.size + (size_t)batch.size + 128), 0};
    put(&moved, head), put(&moved, blank), put(&moved, now);
    for (int i = 0; i < 4; i++)
        if (kept[i].size > 0) put(&moved, blank), put(&moved, kept[i]);
    put(&moved, blank), put(&moved, batch), put(&moved, id);
    String *made = CreateString(NULL, moved.at, moved.size);
    Free(moved.at);
    FreeString(NULL, entry);
    return made;
}

/* -- transactions (KIP-98), see store/lua/transactional_producer.lua */

static Span epoch_of(const Producer *producer) {
    Span rest = text(producer->head);
    return next_word(&rest);
}

/* `epoch first_id started_ms`: a transaction that is open on a partition. */
static String *opened(const Producer *producer, EntryId first, const String *started) {
    String *entry = make_id(first);
    Span blank = {(const uint8_t *)" ", 1}, epoch = epoch_of(producer), id = text(entry), time = text(started);
    Text made = {Alloc((size_t)epoch.size + (size_t)id.size + (size_t)time.size + 2), 0};
    put(&made, epoch), put(&made, blank), put(&made, id), put(&made, blank), put(&made, time);
    String *string = CreateString(NULL, made.at, made.size);
    Free(made.at);
    FreeString(NULL, entry);
    return string;
}

/* `producer:epoch`: the field `transaction` of an entry. */
static String *transaction_of(const Producer *producer) {
    Span id = text(producer->id), colon = {(const uint8_t *)":", 1}, epoch = epoch_of(producer);
    Text made = {Alloc((size_t)id.size + (size_t)epoch.size + 1), 0};
    put(&made, id), put(&made, colon), put(&made, epoch);
    String *string = CreateString(NULL, made.at, made.size);
    Free(made.at);
    return string;
}

#endif
