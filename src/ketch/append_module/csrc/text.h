/* Strings of the server, and bytes in them. Whoever makes a string frees it. */

#ifndef KETCH_TEXT_H
#define KETCH_TEXT_H

#include <inttypes.h>
#include <stdio.h>

#include "api.h"
#include "records.h"

enum { ID_SIZE = 48 }; /* bytes of "ms-seq" and a zero */

static bool is_empty(const String *string) {
    size_t size;
    StringPtrLen(string, &size);
    return size == 0;
}

static Span text(const String *string) {
    size_t size;
    const char *at = StringPtrLen(string, &size);
    return (Span){(const uint8_t *)at, size > INT32_MAX ? INT32_MAX : (int32_t)size};
}

static String *make(Span span) { return CreateString(NULL, (const char *)span.at, (size_t)span.size); }

static String *make_number(long long number) { return CreateStringFromLongLong(NULL, number); }

static String *make_id(EntryId id) {
    char shown[ID_SIZE];
    int size = snprintf(shown, sizeof shown, "%" PRIu64 "-%" PRIu64, id.ms, id.seq);
    return CreateString(NULL, shown, (size_t)size);
}

static bool is_word(const String *string, const char *word) {
    Span span = text(string);
    return (size_t)span.size == strlen(word) && memcmp(span.at, word, (size_t)span.size) == 0;
}

#endif
