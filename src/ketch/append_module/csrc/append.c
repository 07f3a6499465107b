/* A module for Redis and Valkey: one command appends a whole batch to a stream.
 *
 *     KETCH.APPEND stream producers fence
 *                  expected first max bits count must_exist
 *                  producer state head now batch
 *                  records base_timestamp append_time bytes    |    entry field value [field value ...]
 *
 *     expected     last-generated-id that `first` was chosen to follow; "": none was
 *     first        id of the batch's first offset; where the stream does not end at `expected`, the least that it may be
 *     max          the largest id that a record may have
 *     bits         sequence bits of an offset: the id after ms-(2^bits - 1) is (ms + 1)-0
 *     count        offsets that the batch takes
 *     must_exist   1: nothing is stored where there is no stream
 *     producer     id of an idempotent producer, "" without one; then, as store/lua/producer.lua has them, its expected
 *                  state, its new head, the time in ms, and the batch's sequences
 *     records      `bytes` are `count` records of Kafka, see records.h: an entry for each, its id the record's offset.
 *                  `append_time` replaces their timestamps unless it is "".
 *     entry        one entry of these fields; its id is that of the batch's last offset
 *
 * The batch is stored whole, or nothing of it. The answers:
 *
 *     1            it is stored at `first`, and the stream had ended at `expected`
 *     ms-seq       it is stored, and this is the id of its first offset
 *     0            the producer's state is not the expected one, the stream is missing, or the fence is set
 *     -1           the records have too many fields for one command
 *     INVALID ...  an error: the bytes are not `count` records
 *
 * Any other error means that nothing is stored, too. With 0 and -1 the fence is set: later batches of the same writer, which may be on their way already,
 * must not overtake a refused one. The writer deletes it. Where another client has written to the stream, nothing is
 * refused: the ids follow what is there.
 *
 *     KETCH.TXNAPPEND stream producers fence transactions started expected first ...
 *
 * does the same for a batch of a producer's transaction (KIP-98), from version 2 on. `transactions` is the hash of those
 * that are open on the partition: by producer `epoch first_id started`. The batch opens its transaction, which began at
 * `started` (ms), where it is not open. Where `started` is "" it must be open, or the batch is refused (0). An entry for
 * a record has the field `transaction` beside the others.
 *
 *     KETCH.VERSION    the oldest and the newest version of KETCH.APPEND that this module understands
 *
 * Replicas and the append-only file get no command of this module, which another server may not have. A batch of several
 * entries goes there as one EVAL of REPLAY below, with everything that it needs as arguments (batch.h). A batch of one
 * entry goes there as HSET and XADD. So do entries too wide for Lua. That a transaction is opened goes there as an HSET of
 * its own. The server puts MULTI and EXEC around several
 * commands, and a transaction whose end is missing from the file is dropped when the file is loaded.
 *
 *     KETCH.LOAD stream first 2^bits entries fields name... value...
 *
 * adds such a run of entries. It is for REPLAY alone, and an error but while the server loads its file, and on a replica:
 * there it takes a third of the time that XADD takes from Lua. A replica's own file gets the run as an EVAL of REPLAY
 * again. Where the command is missing, as on a server without the module, or an error, as on a replica of Redis 6.2,
 * which writes the EVAL to its file as it came, REPLAY adds the same entries by XADD.
 *
 * The last-generated-id: no function of the module API tells it, and XINFO, which does, copies the first and the last
 * entry, which may have a megabyte each. The cases:
 *
 * - The stream's last entry has the id `expected`. The batch goes to `first`. Where another client has added an entry
 *   above it and deleted it again, adding one at or below that id fails, and XINFO tells. An entry that is a whole batch
 *   has the id of its last offset, which may be above it all the same: single.lua does not see that either, but Redis
 *   pushes such a write to the broker (`Watcher.others_wrote`).
 * - The last entry has a larger id, or none is expected. For an entry a record, its id + 1 or `first` is tried; where
 *   that fails, XINFO tells. For a whole batch XINFO is asked at once.
 * - There is none, or it has a smaller id: the one with the id `expected` was deleted. XINFO tells. */

#include "batch.h"
#include "producer.h"
#include "sockets.h"

enum { VERSION = 2, VERSION_OLDEST = 1 };
enum { REFUSED = 0, WIDE = -1 };
enum { UNPACK_MAX = 7000 };       /* words of an XADD that Lua's stack takes, see store/scripts.py */
enum { ARGUMENTS_MAX = 1000000 }; /* Redis 6.2 takes 1,048,576 from the server it replicates */
enum { ENTRY_MAX = 1 << 29 };     /* bytes; a stream's node takes 2^30 */

static const char REPLAY[] =
    "local stream, limit, at, by_module = KEYS[1], tonumber(ARGV[3]), 6, true\n"
    "local ms, seq = tonumber(ARGV[1]), tonumber(ARGV[2])\n"
    "if ARGV[4] ~= '' then redis.call('HSET', KEYS[2], ARGV[4], ARGV[5]) end\n"
    "while at <= #ARGV do\n"
    " local entries, fields, words = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), {}\n"
    " local behind = at + 2 + fields * (entries + 1)\n"
    " local prefix = string.format('%.0f-', ms)\n"
    " by_module = by_module and type(redis.pcall(\n"
    "  'KETCH.LOAD', stream, prefix .. seq, limit, unpack(ARGV, at, behind - 1))) == 'number'\n"
    " if by_module then\n"
    "  seq = seq + entries\n"
    "  ms, seq = ms + math.floor(seq / limit), seq % limit\n"
    " else\n"
    "  for i = 1, fields do words[2 * i - 1] = ARGV[at + 1 + i] end\n"
    "  for value = at + 1 + fields, behind - 2, fields do\n"
    "   for i = 1, fields do words[2 * i] = ARGV[value + i] end\n"
    "   redis.call('XADD', stream, prefix .. seq, unpack(words))\n"
    "   seq = seq + 1\n"
    "   if seq == limit then ms, seq, prefix = ms + 1, 0, string.format('%.0f-', ms + 1) end\n"
    "  end\n"
    " end\n"
    " at = behind\n"
    "end";

/* The arguments of KETCH.APPEND and KETCH.TXNAPPEND. */
typedef struct {
    String *stream, *producers, *fence;
    String *transactions; /* NULL: the batch belongs to none */
    String *started;      /* NULL: it opens none */
    EntryId expected, first, max;
    long long bits, count, must_exist;
    Producer producer;
    bool any; /* there is no expected id */
} Request;

/* -- entry ids */

static int compare(EntryId a, EntryId b) {
    if (a.ms != b.ms) return a.ms < b.ms ? -1 : 1;
    return a.seq == b.seq ? 0 : a.seq < b.seq ? -1 : 1;
}

/* The id so many offsets on. `ms` is at most max.ms, below 2^53, and `count` below 2^31. */
static EntryId advanced(EntryId id, uint64_t count, long long bits) {
    uint64_t seq = id.seq + count;
    return (EntryId){id.ms + (seq >> bits), seq & ((UINT64_C(1) << bits) - 1)};
}

/* The id after the last one of a stream, which may be any. */
static EntryId following(EntryId last, long long bits) {
    uint64_t mask = (UINT64_C(1) << bits) - 1, carry = (last.seq & mask) == mask;
    EntryId next = {last.ms + (last.seq >> bits) + carry, (last.seq + 1) & mask};
    return next.ms < last.ms ? (EntryId){UINT64_MAX, mask} : next;
}

/* -- the stream */

static EntryId id_of(Reply *reply) {
    size_t size = 0;
    const char *at = CallReplyStringPtr(reply, &size);
    EntryId id = {0, 0};
    if (at == NULL) return id;
    String *shown = CreateString(NULL, at, size);
    StringToStreamID(shown, &id);
    FreeString(NULL, shown);
    return id;
}

static EntryId ask_last_id(Context *context, String *stream) {
    static const char wanted[] = "last-generated-id";
    EntryId last = {0, 0};
    Reply *info = Call(context, "XINFO", "cs", "STREAM", stream);
    if (info == NULL) return last;
    size_t length = CallReplyType(info) == REPLY_ARRAY ? CallReplyLength(info) : 0;
    for (size_t i = 0; i + 1 < length; i += 2) {
        size_t size = 0;
        const char *name = CallReplyStringPtr(CallReplyArrayElement(info, i), &size);
        if (name == NULL || size != sizeof wanted - 1 || memcmp(name, wanted, size) != 0) continue;
        last = id_of(CallReplyArrayElement(info, i + 1));
        break;
    }
    FreeCallReply(info);
    return last;
}

/* The id of the last entry that is there; false in an empty stream. */
static bool last_entry(Key *key, EntryId *id) {
    long fields;
    if (StreamIteratorStart(key, ITERATE_REVERSE, NULL, NULL) != API_OK) return false;
    bool found = StreamIteratorNextID(key, id, &fields) == API_OK;
    StreamIteratorStop(key);
    return found;
}

/* Where the batch's first offset goes.
 * as_expected: the stream ends where the writer thought. certain: the id is known to be above the last-generated-id. */
typedef struct {
    EntryId first;
    bool as_expected;
    bool certain;
} Place;

static Place place_after(const Request *request, EntryId last, bool certain) {
    EntryId next = following(last, request->bits);
    bool as_expected = !request->any && compare(last, request->expected) == 0;
    return (Place){compare(next, request->first) < 0 ? request->first : next, as_expected, certain};
}

static Place certain_place(Context *context, const Request *request) {
    return place_after(request, ask_last_id(context, request->stream), true);
}

static Place find_place(Context *context, const Request *request, const Batch *batch, Key *key) {
    EntryId last = {0, 0};
    if (KeyType(key) == KEY_EMPTY) return place_after(request, last, true);
    if (!last_entry(key, &last)) return certain_place(context, request);
    int against = request->any ? 1 : compare(last, request->expected);
    bool tells = batch->entries == (size_t)request->count; /* the first entry has the id of the first offset */
    return against == 0 || (against > 0 && tells) ? place_after(request, last, false) : certain_place(context, request);
}

static bool beyond(const Request *request, EntryId first) {
    if (first.ms > request->max.ms) return true; /* and else nothing below overflows */
    return compare(advanced(first, (uint64_t)request->count - 1, request->bits), request->max) > 0;
}

/* -- the entries */

/* The id of an entry: that of the last of its offsets. */
static EntryId entry_id(const Request *request, const Batch *batch, EntryId first, size_t number) {
    return advanced(first, (uint64_t)request->count / batch->entries * (number + 1) - 1, request->bits);
}

/* Adds all entries; false where the first one's id is not above the last-generated-id. The ids after it rise, and the
 * sizes were looked at, so nothing else can fail. If it does all the same, what was added goes again. */
static bool add(Key *key, const Request *request, EntryId first, const Batch *batch) {
    Walk entry = walk(batch);
    bool added = true;
    while (added && next_entry(&entry)) {
        EntryId id = entry_id(request, batch, first, entry.number - 1);
        added = StreamAdd(key, 0, &id, entry.words, (long)entry.fields) == API_OK;
    }
    for (size_t i = 0; !added && i + 1 < entry.number; i++) {
        EntryId id = entry_id(request, batch, first, i);
        StreamDelete(key, &id);
    }
    Free(entry.words);
    return added;
}

static void replicate_entries(Context *context, const Request *request, EntryId first, const Batch *batch) {
    String *state = batch->words[HEAD_STATE];
    if (request->producer.id != NULL) Replicate(context, "HSET", "sss", request->producers, request->producer.id, state);
    Walk entry = walk(batch);
    while (next_entry(&entry)) {
        String *id = make_id(entry_id(request, batch, first, entry.number - 1));
        Replicate(context, "XADD", "ssv", request->stream, id, entry.words, 2 * (size_t)entry.fields);
        FreeString(NULL, id);
    }
    Free(entry.words);
}

static void replicate(Context *context, const Request *request, EntryId first, Batch *batch, String *transaction) {
    if (transaction != NULL)
        Replicate(context, "HSET", "sss", request->transactions, request->producer.id, transaction);
    if (batch->entries == 1 || batch->widest > UNPACK_MAX || batch->count > ARGUMENTS_MAX) {
        replicate_entries(context, request, first, batch);
        return;
    }
    String *numbers[] = {make_number((long long)first.ms), make_number((long long)first.seq),
                         make_number(1LL << request->bits)};
    memcpy(batch->words + HEAD_ID, numbers, sizeof numbers);
    if (request->producer.id != NULL) batch->words[HEAD_PRODUCER] = request->producer.id;
    Replicate(context, "EVAL", "v", batch->words, batch->count);
    for (int i = 0; i < 3; i++) FreeString(NULL, numbers[i]);
}

/* -- the open transactions */

typedef enum { CLOSED, OPEN, NO_HASH } Openness;

/* A batch that belongs to no transaction has nothing to open. */
static Openness openness(Context *context, const Request *request) {
    if (request->transactions == NULL) return OPEN;
    Key *key = OpenKey(context, request->transactions, READ);
    if (key == NULL) return CLOSED;
    int type = KeyType(key);
    String *found = NULL;
    if (type == KEY_HASH) HashGet(key, 0, request->producer.id, &found, NULL);
    CloseKey(key);
    if (found != NULL) FreeString(NULL, found);
    return type != KEY_HASH && type != KEY_EMPTY ? NO_HASH : found != NULL ? OPEN : CLOSED;
}

/* Opens the producer's transaction with its first offset there; what is stored of it. */
static String *open_transaction(Context *context, const Request *request, EntryId first) {
    String *transaction = opened(&request->producer, first, request->started);
    Key *key = OpenKey(context, request->transactions, READ | WRITE);
    HashSet(key, 0, request->producer.id, transaction, NULL);
    CloseKey(key);
    return transaction;
}

/* -- KETCH.APPEND */

enum { STREAM = 1, PRODUCERS, FENCE, EXPECTED, FIRST, MAX, BITS, COUNT, MUST_EXIST };
enum { TRANSACTIONS = FENCE + 1, STARTED }; /* of KETCH.TXNAPPEND, before the others */
enum { PRODUCER = 10, STATE, PRODUCER_HEAD, NOW, SEQUENCES, SHAPE, SHAPED };

static int refuse(Context *context, const Request *request, int why) {
    Reply *reply = Call(context, "SET", "sccc!", request->fence, "up", "PX", "60000");
    if (reply != NULL) FreeCallReply(reply);
    return ReplyWithLongLong(context, why);
}

/* Opens a key that holds `type`, or nothing; NULL where it holds something else. */
static Key *open_key(Context *context, String *name, int type) {
    Key *key = OpenKey(context, name, READ | WRITE);
    if (KeyType(key) == KEY_EMPTY || KeyType(key) == type) return key;
    CloseKey(key);
    return NULL;
}

static bool exists(Context *context, String *name) {
    Key *key = OpenKey(context, name, READ);
    bool found = key != NULL && KeyType(key) != KEY_EMPTY;
    if (key != NULL) CloseKey(key);
    return found;
}

/* The producer's state in Redis; NULL where there is none. */
static String *stored_state(const Request *request, Key *producers) {
    String *state = NULL;
    if (KeyType(producers) == KEY_HASH) HashGet(producers, 0, request->producer.id, &state, NULL);
    return state;
}

static int reply_with_id(Context *context, EntryId id) {
    char shown[ID_SIZE];
    int size = snprintf(shown, sizeof shown, "%" PRIu64 "-%" PRIu64, id.ms, id.seq);
    return ReplyWithStringBuffer(context, shown, (size_t)size);
}

static int reply_beyond(Context *context, const Request *request) {
    char error[512];
    Span stream = text(request->stream);
    snprintf(error, sizeof error, "ERR the next entry id would be beyond Kafka's offsets (%.*s)",
             stream.size < 256 ? stream.size : 256, (const char *)stream.at);
    return ReplyWithError(context, error);
}

static void announce(Context *context, const Request *request, const Batch *batch, bool opens) {
    if (request->producer.id != NULL) NotifyKeyspaceEvent(context, NOTIFY_HASH, "hset", request->producers);
    if (opens) NotifyKeyspaceEvent(context, NOTIFY_HASH, "hset", request->transactions);
    for (size_t i = 0; i < batch->entries; i++) NotifyKeyspaceEvent(context, NOTIFY_STREAM, "xadd", request->stream);
}

/* Stores the batch in keys that are open; the reply is left to the caller unless it is an error. */
static bool store(Context *context, const Request *request, Batch *batch, Key *stream, Key *producers, Place *place) {
    *place = find_place(context, request, batch, stream);
    bool added = !beyond(request, place->first) && add(stream, request, place->first, batch);
    if (!added && !place->certain) { /* an entry above the last one that is there was deleted */
        *place = certain_place(context, request);
        added = !beyond(request, place->first) && add(stream, request, place->first, batch);
    }
    if (!added) {
        if (beyond(request, place->first))
            reply_beyond(context, request);
        else
            ReplyWithError(context, "ERR the entries cannot be added");
        return false;
    }
    if (producers != NULL) {
        String *state = stored_state(request, producers);
        batch->words[HEAD_STATE] = moved(&request->producer, state == NULL ? text(empty) : text(state), place->first);
        HashSet(producers, 0, request->producer.id, batch->words[HEAD_STATE], NULL);
        if (state != NULL) FreeString(NULL, state);
    }
    return true;
}

static bool producer_is_as_expected(const Request *request, Key *producers) {
    String *state = stored_state(request, producers);
    bool same = begins_with(state == NULL ? text(empty) : text(state), text(request->producer.expected));
    if (state != NULL) FreeString(NULL, state);
    return same;
}

static int append_to(Context *context, const Request *request, Batch *batch, Key *stream, Key *producers, bool open) {
    Place place = {{0, 0}, false, false};
    bool missing = request->must_exist && KeyType(stream) == KEY_EMPTY;
    bool fit = !missing && (open || request->started != NULL) &&
               (producers == NULL || producer_is_as_expected(request, producers));
    bool stored = fit && store(context, request, batch, stream, producers, &place);
    CloseKey(stream); /* says to all who watch, track or wait for it that the key has changed */
    if (producers != NULL) CloseKey(producers);
    if (!fit) return refuse(context, request, REFUSED);
    if (!stored) return API_OK;
    String *transaction = open ? NULL : open_transaction(context, request, place.first);
    replicate(context, request, place.first, batch, transaction);
    announce(context, request, batch, !open);
    if (transaction != NULL) FreeString(NULL, transaction);
    return place.as_expected ? ReplyWithLongLong(context, 1) : reply_with_id(context, place.first);
}

static int append(Context *context, const Request *request, Batch *batch) {
    if (exists(context, request->fence)) return ReplyWithLongLong(context, REFUSED);
    Openness transaction = openness(context, request);
    Key *stream = transaction == NO_HASH ? NULL : open_key(context, request->stream, KEY_STREAM);
    if (stream == NULL) return ReplyWithError(context, WRONG_TYPE);
    Key *producers = request->producer.id == NULL ? NULL : open_key(context, request->producers, KEY_HASH);
    if (request->producer.id == NULL || producers != NULL)
        return append_to(context, request, batch, stream, producers, transaction == OPEN);
    CloseKey(stream);
    return ReplyWithError(context, WRONG_TYPE);
}

static bool parse_number(const String *string, long long least, long long most, long long *number) {
    return StringToLongLong(string, number) == API_OK && *number >= least && *number <= most;
}

/* What is wrong with the arguments after the keys and before the entries; NULL where nothing is. */
static const char *parse_request(String **argv, Request *request) {
    request->any = is_empty(argv[EXPECTED]);
    if (!request->any && StringToStreamID(argv[EXPECTED], &request->expected) != API_OK) return "ERR expected is no id";
    if (StringToStreamID(argv[FIRST], &request->first) != API_OK) return "ERR first is no id";
    if (StringToStreamID(argv[MAX], &request->max) != API_OK || request->max.ms >> 53 != 0)
        return "ERR max is no id of a record";
    if (!parse_number(argv[BITS], 1, 32, &request->bits)) return "ERR bits are no number from 1 to 32";
    if (!parse_number(argv[COUNT], 1, INT32_MAX, &request->count)) return "ERR count is no number of offsets";
    if (!parse_number(argv[MUST_EXIST], 0, 1, &request->must_exist)) return "ERR must_exist is neither 0 nor 1";
    String *producer = is_empty(argv[PRODUCER]) ? NULL : argv[PRODUCER];
    request->producer = (Producer){producer, argv[STATE], argv[PRODUCER_HEAD], argv[NOW], argv[SEQUENCES]};
    return request->first.seq >> request->bits == 0 ? NULL : "ERR first has a sequence beyond its bits";
}

static int append_records(Context *context, const Request *request, String **argv, int argc) {
    long long base = 0, append_time = 0;
    bool stamped = argc == SHAPED + 3 && !is_empty(argv[SHAPED + 1]);
    if (argc != SHAPED + 3) return WrongArity(context);
    if (StringToLongLong(argv[SHAPED], &base) != API_OK ||
        (stamped && StringToLongLong(argv[SHAPED + 1], &append_time) != API_OK))
        return ReplyWithError(context, "ERR a timestamp is no number");
    Span bytes = text(argv[SHAPED + 2]);
    if (bytes.size > ENTRY_MAX) return ReplyWithError(context, "ERR the batch is too large");
    Batch batch;
    start_batch(&batch, request->stream, request->producers, 64);
    if (request->transactions != NULL) batch.transaction = transaction_of(&request->producer);
    int64_t override = append_time;
    int answer;
    if (read_records(&batch, bytes, request->count, base, stamped ? &override : NULL))
        answer = append(context, request, &batch);
    else if (batch.error[0] != 0)
        answer = ReplyWithError(context, batch.error);
    else
        answer = refuse(context, request, WIDE);
    free_batch(&batch);
    return answer;
}

static int append_entry(Context *context, const Request *request, String **argv, int argc) {
    int words = argc - SHAPED;
    if (words < 2 || words % 2 != 0) return WrongArity(context);
    size_t size = 0;
    for (int i = SHAPED; i < argc; i++) {
        size += (size_t)text(argv[i]).size;
        if (size > ENTRY_MAX) return ReplyWithError(context, "ERR the entry is too large");
    }
    Batch batch;
    start_batch(&batch, request->stream, request->producers, (size_t)words + 2);
    push(&batch, make_number(1));
    push(&batch, make_number(words / 2));
    for (int i = SHAPED; i < argc; i += 2) push_shared(&batch, argv[i]);
    for (int i = SHAPED + 1; i < argc; i += 2) push_shared(&batch, argv[i]);
    batch.entries = 1;
    batch.widest = (size_t)words;
    int answer = append(context, request, &batch);
    free_batch(&batch);
    return answer;
}

/* `argv` as KETCH.APPEND has it; the keys are in the request already. */
static int append_shaped(Context *context, Request *request, String **argv, int argc) {
    const char *why = parse_request(argv, request);
    if (why != NULL) return ReplyWithError(context, why);
    if (request->transactions != NULL && request->producer.id == NULL)
        return ReplyWithError(context, "ERR a transaction without a producer");
    if (is_word(argv[SHAPE], "records")) return append_records(context, request, argv, argc);
    if (is_word(argv[SHAPE], "entry")) return append_entry(context, request, argv, argc);
    return ReplyWithError(context, "ERR the entries are neither records nor entry");
}

static int append_command(Context *context, String **argv, int argc) {
    if (argc <= SHAPED) return WrongArity(context);
    Request request = {.stream = argv[STREAM], .producers = argv[PRODUCERS], .fence = argv[FENCE]};
    return append_shaped(context, &request, argv, argc);
}

static int append_in_transaction_command(Context *context, String **argv, int argc) {
    if (argc <= SHAPED + 2) return WrongArity(context);
    Request request = {.stream = argv[STREAM], .producers = argv[PRODUCERS], .fence = argv[FENCE]};
    request.transactions = argv[TRANSACTIONS], request.started = is_empty(argv[STARTED]) ? NULL : argv[STARTED];
    return append_shaped(context, &request, argv + 2, argc - 2);
}

/* -- KETCH.LOAD */

enum { LOAD_FIRST = 2, LOAD_LIMIT, LOAD_ENTRIES, LOAD_FIELDS, LOAD_NAMES };

static bool load(Key *key, EntryId id, uint64_t limit, long long entries, long long fields, String **names) {
    String **words = Alloc(2 * (size_t)fields * sizeof *words), **value = names + fields;
    bool added = true;
    for (long long i = 0; i < fields; i++) words[2 * i] = names[i];
    for (long long n = 0; added && n < entries; n++) {
        for (long long i = 0; i < fields; i++) words[2 * i + 1] = *value++;
        added = StreamAdd(key, 0, &id, words, (long)fields) == API_OK;
        if (++id.seq >= limit) id.ms++, id.seq = 0;
    }
    Free(words);
    return added;
}

/* Puts a run into the file of a replica. Its own replicas get what their master's master has sent. */
static void write_down(Context *context, String **argv, int argc, EntryId first, long long entries) {
    size_t run = (size_t)(argc - LOAD_ENTRIES);
    String **words = Alloc((HEAD + run) * sizeof *words);
    String *numbers[] = {make_number((long long)first.ms), make_number((long long)first.seq)};
    String *head[HEAD] = {replay, two, argv[STREAM], argv[STREAM], numbers[0], numbers[1], argv[LOAD_LIMIT], empty, empty};
    memcpy(words, head, sizeof head);
    memcpy(words + HEAD, argv + LOAD_ENTRIES, run * sizeof *words);
    Replicate(context, "EVAL", "v", words, HEAD + run);
    for (long long i = 0; i < entries; i++) NotifyKeyspaceEvent(context, NOTIFY_STREAM, "xadd", argv[STREAM]);
    for (int i = 0; i < 2; i++) FreeString(NULL, numbers[i]);
    Free(words);
}

static int load_command(Context *context, String **argv, int argc) {
    EntryId first;
    long long limit, entries, fields;
    if (argc <= LOAD_NAMES) return WrongArity(context);
    int flags = GetContextFlags(context);
    bool follows = (flags & LOADING) == 0;
    if (follows && ((flags & REPLICA) == 0 || GetCommand == NULL))
        return ReplyWithError(context, "ERR this command is for a server that loads its append-only file, or a replica");
    if (StringToStreamID(argv[LOAD_FIRST], &first) != API_OK || !parse_number(argv[LOAD_LIMIT], 1, INT64_MAX, &limit) ||
        !parse_number(argv[LOAD_ENTRIES], 1, argc, &entries) || !parse_number(argv[LOAD_FIELDS], 1, argc, &fields) ||
        argc - LOAD_NAMES != fields * (entries + 1))
        return ReplyWithError(context, "ERR these are no entries");
    Key *key = open_key(context, argv[STREAM], KEY_STREAM);
    if (key == NULL) return ReplyWithError(context, WRONG_TYPE);
    bool added = load(key, first, (uint64_t)limit, entries, fields, argv + LOAD_NAMES);
    CloseKey(key);
    if (added && follows) write_down(context, argv, argc, first, entries);
    return added ? ReplyWithLongLong(context, entries) : ReplyWithError(context, "ERR the entries cannot be added");
}

static int version_command(Context *context, String **argv, int argc) {
    (void)argv;
    if (argc != 1) return WrongArity(context);
    ReplyWithArray(context, 2);
    ReplyWithLongLong(context, VERSION_OLDEST);
    return ReplyWithLongLong(context, VERSION);
}

/* -- loading */

static int create(Context *context, const char *name, CommandFunction function, const char *flags, int last_key,
                  const char *categories) {
    if (CreateCommand(context, name, function, flags, last_key > 0, last_key, last_key > 0) != API_OK) return API_ERR;
    if (GetCommand == NULL || SetCommandACLCategories == NULL) return API_OK;
    return SetCommandACLCategories(GetCommand(context, name), categories);
}

int RedisModule_OnLoad(Context *context, String **argv, int argc);

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
int RedisModule_OnLoad(Context *context, String **argv, int argc) {
    (void)argv;
    if (argc != 0 || fetch_api(context) != API_OK) return API_ERR;
    SetModuleAttribs(context, "ketch", VERSION, API_VERSION);
    allow_slot_migration(context);
    widen_send_buffers(context);
    replay = CreateString(NULL, REPLAY, sizeof REPLAY - 1);
    two = CreateString(NULL, "2", 1), empty = CreateString(NULL, "", 0);
    name_key = CreateString(NULL, "key", 3), name_value = CreateString(NULL, "value", 5);
    name_timestamp = CreateString(NULL, "timestamp", 9), name_transaction = CreateString(NULL, "transaction", 11);
    if (create(context, "ketch.append", append_command, "write deny-oom", FENCE, "write stream slow") != API_OK)
        return API_ERR;
    if (create(context, "ketch.txnappend", append_in_transaction_command, "write deny-oom", TRANSACTIONS,
               "write stream slow") != API_OK)
        return API_ERR;
    if (create(context, "ketch.load", load_command, "write deny-oom", STREAM, "write stream slow") != API_OK)
        return API_ERR;
    return create(context, "ketch.version", version_command, "readonly fast", 0, "read fast");
}
