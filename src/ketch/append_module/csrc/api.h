/* The functions of Redis's module API that append.c uses, declared here so that no header of a server is needed.
 *
 * A server hands OnLoad a context whose first word is the address of its GetApi. GetApi gives every function by name.
 * Redis from 6.2 on and Valkey know all of these under the names with the prefix "RedisModule_". Those of API_SINCE_7_2
 * are missing in older servers and stay NULL there. Numbers and structures are the API's and never change. */

#ifndef KETCH_API_H
#define KETCH_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct RedisModuleCtx Context;
typedef struct RedisModuleKey Key;
typedef struct RedisModuleString String;
typedef struct RedisModuleCallReply Reply;
typedef struct RedisModuleCommand Command;
typedef int (*CommandFunction)(Context *, String **, int);

typedef struct {
    uint64_t ms;
    uint64_t seq;
} EntryId;

typedef struct {
    uint64_t id;
    uint64_t data_version;
} Event;
typedef void (*EventFunction)(Context *, Event, uint64_t what, void *data);

typedef struct {
    uint64_t version;
    uint64_t flags;
} ClientInfo; /* the beginning of it */

enum { API_OK = 0, API_ERR = 1, API_VERSION = 1 };
enum { READ = 1 << 0, WRITE = 1 << 1 };
enum { KEY_EMPTY = 0, KEY_HASH = 3, KEY_STREAM = 7 };
enum { ITERATE_REVERSE = 1 << 1 };
enum { REPLICA = 1 << 3, LOADING = 1 << 13 };
enum { NOTIFY_HASH = 1 << 6, NOTIFY_STREAM = 1 << 10 };
enum { REPLY_ARRAY = 3 };
enum { CLIENT_CHANGE = 4, CLIENT_CONNECTED = 0, CLIENT_UNIX_SOCKET = 1 << 4 };
enum { HANDLE_SLOT_MIGRATION = 1 << 5 };

#define WRONG_TYPE "WRONGTYPE Operation against a key holding the wrong kind of value"

#define API(F) \
    F(void, SetModuleAttribs, (Context *, const char *name, int version, int api_version)) \
    F(int, CreateCommand, (Context *, const char *name, CommandFunction, const char *flags, int first, int last, int step)) \
    F(int, WrongArity, (Context *)) \
    F(int, GetContextFlags, (Context *)) \
    F(void *, Alloc, (size_t)) \
    F(void *, Realloc, (void *, size_t)) \
    F(void, Free, (void *)) \
    F(String *, CreateString, (Context *, const char *, size_t)) \
    F(String *, CreateStringFromLongLong, (Context *, long long)) \
    F(void, FreeString, (Context *, String *)) \
    F(void, RetainString, (Context *, String *)) \
    F(const char *, StringPtrLen, (const String *, size_t *)) \
    F(int, StringToLongLong, (const String *, long long *)) \
    F(int, StringToStreamID, (const String *, EntryId *)) \
    F(Key *, OpenKey, (Context *, String *, int mode)) \
    F(void, CloseKey, (Key *)) \
    F(int, KeyType, (Key *)) \
    F(int, HashGet, (Key *, int flags, ...)) \
    F(int, HashSet, (Key *, int flags, ...)) \
    F(int, StreamAdd, (Key *, int flags, EntryId *, String **, long fields)) \
    F(int, StreamDelete, (Key *, EntryId *)) \
    F(int, StreamIteratorStart, (Key *, int flags, EntryId *start, EntryId *end)) \
    F(int, StreamIteratorNextID, (Key *, EntryId *, long *fields)) \
    F(int, StreamIteratorStop, (Key *)) \
    F(int, NotifyKeyspaceEvent, (Context *, int type, const char *event, String *key)) \
    F(int, SubscribeToServerEvent, (Context *, Event, EventFunction)) \
    F(int, Replicate, (Context *, const char *name, const char *format, ...)) \
    F(Reply *, Call, (Context *, const char *name, const char *format, ...)) \
    F(int, CallReplyType, (Reply *)) \
    F(size_t, CallReplyLength, (Reply *)) \
    F(Reply *, CallReplyArrayElement, (Reply *, size_t)) \
    F(const char *, CallReplyStringPtr, (Reply *, size_t *)) \
    F(void, FreeCallReply, (Reply *)) \
    F(int, ReplyWithError, (Context *, const char *)) \
    F(int, ReplyWithLongLong, (Context *, long long)) \
    F(int, ReplyWithStringBuffer, (Context *, const char *, size_t)) \
    F(int, ReplyWithArray, (Context *, long))

#define API_SINCE_7_2(F) \
    F(Command *, GetCommand, (Context *, const char *name)) \
    F(int, SetCommandACLCategories, (Command *, const char *))

#define DECLARE(type, name, arguments) static type(*name) arguments;
API(DECLARE)
API_SINCE_7_2(DECLARE)
#undef DECLARE

/* Fetches all functions; API_ERR where the server lacks one. */
static int fetch_api(Context *context) {
    int (*get)(const char *, void *) = *(int (**)(const char *, void *))(void *)context;
#define FETCH(type, name, arguments) \
    if (get("RedisModule_" #name, (void *)&name) != API_OK) return API_ERR;
    API(FETCH)
#undef FETCH
#define FETCH(type, name, arguments) \
    if (get("RedisModule_" #name, (void *)&name) != API_OK) name = NULL;
    API_SINCE_7_2(FETCH)
#undef FETCH
    return API_OK;
}

/* Valkey 9 refuses to move slots (CLUSTER MIGRATESLOTS) while a module is loaded that does not say that it allows it. This
 * one keeps nothing between two commands. Redis has no such flag, and may use its bit for another: only Valkey gives the
 * function by this name. */
static void allow_slot_migration(Context *context) {
    int (*get)(const char *, void *) = *(int (**)(const char *, void *))(void *)context;
    void (*set_options)(Context *, int);
    if (get("ValkeyModule_SetModuleOptions", (void *)&set_options) == API_OK) set_options(context, HANDLE_SLOT_MIGRATION);
}

#endif
