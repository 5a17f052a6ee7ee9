/* Calls that need more than a copy of their arguments: what calls.def and tables.def list. */
#include "linux.h"

typedef u64 plain(/* any function of the driver's */
                  u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64,
                  u64, u64);

#define CALL(name, kind, argument, ...) {#name, kind, argument, __VA_ARGS__},
static const struct special specials[] = {
#include "calls.def"
};
#undef CALL

static const struct special watched = {"", WATCHED, 0, 0, 0};

/* -- which it is ----------------------------------------------------------------------------- */

static int is_exported(const char *name)
{
    for (struct slot *slot = bridge->slots; slot->name; slot++)
        if (!strcmp(slot->name, name)) return 1;
    return 0;
}

/* By its address first: "cuGraphAddNode" is another function for each version that is asked for. */
const struct special *special_of(const char *name, void *real)
{
    static void *addresses[COUNT(specials)];
    static int found;
    const struct special *named = 0;

    if (!__atomic_load_n(&found, __ATOMIC_ACQUIRE)) {
        for (u64 i = 0; i < COUNT(specials); i++) addresses[i] = dlsym(library, specials[i].name);
        __atomic_store_n(&found, 1, __ATOMIC_RELEASE);
    }
    for (u64 i = 0; i < COUNT(specials); i++)
        if (!strcmp(specials[i].name, name)) named = &specials[i];
    if (dlsym(library, name) == real) return named;
    for (u64 i = 0; i < COUNT(specials); i++)
        if (addresses[i] == real) return &specials[i];
    return named || is_exported(name) ? named : &watched;
}

/* -- the calls ------------------------------------------------------------------------------- */

enum { HOST_NODE = 3, NODE_WORDS = 32, NODE_FUNCTION = 2, HOST_WORDS = 2, COREDUMP_FILE = 5 };
enum { WATCHED_ARGUMENTS = 4 }; /* those in registers: beyond them may be anything */

struct ipc_handle {
    char bytes[64];
};

struct va_list_tag {
    unsigned general_offset, float_offset;
    void *overflow, *registers;
};

static u64 call(struct entry *entry, const u64 *a)
{
    return ((plain *)entry->real)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10],
                                  a[11], a[12], a[13], a[14], a[15], a[16], a[17]);
}

static int first_time(struct entry *entry)
{
    return !__atomic_exchange_n(&entry->warned, 1, __ATOMIC_RELAXED);
}

static u64 refuse(struct entry *entry, const char *why)
{
    if (first_time(entry))
        warn("%s: %s; answered with %llu", entry->name, why, bridge->errors.unsupported);
    return bridge->errors.unsupported;
}

/* Puts the driver's function for the application's at `place`; 0 if there is none for it. */
static int translate(u64 *place)
{
    if (!*place) return 1;
    *place = (u64)for_driver((void *)*place);
    return *place != 0;
}

/* A call with a copy of the structure that argument `at` points to, whose word `word` is a function. */
static u64 call_with_copy(struct entry *entry, u64 *a, int at, int words, int word)
{
    u64 copy[NODE_WORDS];
    memcpy(copy, (void *)a[at], words * 8);
    if (!translate(&copy[word])) return bridge->errors.memory;
    a[at] = (u64)copy;
    return call(entry, a);
}

static u64 call_with_path(struct entry *entry, u64 *a, int at, u64 *size)
{
    char *path = a[at] ? bridge->unix_path((char *)a[at]) : 0;
    if (!path) return call(entry, a);
    u64 bytes = strlen(path) + 1, result;
    a[at] = (u64)path;
    if (size) a[at + 1] = (u64)&bytes;
    result = call(entry, a);
    bridge->free_path(path);
    return result;
}

static u64 get_function(struct entry *entry, u64 *a, void **place)
{
    const char *name = (const char *)a[0];
    u64 result = call(entry, a);
    if (result || !place || !*place) return result;
    for (struct replacement *r = bridge->replacements; r->name; r++)
        if (!strcmp(r->name, name)) {
            *place = r->function;
            return result;
        }
    *place = for_windows(*place, special_of(name, *place), name);
    return *place ? result : bridge->errors.memory;
}

static u64 get_table(struct entry *entry, u64 *a, u64 **place)
{
    u64 result = call(entry, a);
    if (result || !place || !*place) return result;
    *place = table_for_windows(*place, (unsigned char *)a[1]);
    return *place ? result : bridge->errors.missing;
}

static void untranslate(u64 *place) { *place = (u64)windows_function((void *)*place); }

static u64 read_handle(const struct special *special, u64 argument)
{
    if (special->offset < 0) return (unsigned)argument;
    return argument ? *(unsigned *)(argument + special->offset) : 0;
}

static u64 get_long(struct entry *entry, u64 *a, unsigned *place)
{
    u64 wide = 0, result;
    if (place) a[entry->special->argument] = (u64)&wide;
    result = call(entry, a);
    if (place && !result) *place = wide > ~0u ? ~0u : wide;
    return result;
}

/* A function that nobody has described: its first call may show that it takes a callback. */
static u64 watch(struct entry *entry, u64 *a)
{
    for (int i = 0; i < WATCHED_ARGUMENTS; i++)
        if (bridge->is_code((void *)a[i]) && first_time(entry))
            warn("%s was called with what may be a function of the program's, as argument %d: "
                 "it is not translated",
                 entry->name, i);
    call_it_plainly(entry);
    return call(entry, a);
}

/* Called by bridge_special. */
HIDDEN u64 special(u64 *a, struct entry *entry, const double *floats)
{
    const struct special *rule = entry->special;
    int at = rule->argument;
    u64 result, handle;

    switch (rule->kind) {
    case CALLBACK: return translate(&a[at]) ? call(entry, a) : bridge->errors.memory;
    case HOST_PARAMS: return a[at] ? call_with_copy(entry, a, at, HOST_WORDS, 0) : call(entry, a);
    case NODE_PARAMS:
        if (!a[at] || *(int *)a[at] != HOST_NODE) return call(entry, a);
        return call_with_copy(entry, a, at, NODE_WORDS, NODE_FUNCTION);
    case HOST_RESULT:
        result = call(entry, a);
        if (!result) untranslate((u64 *)a[at]);
        return result;
    case NODE_RESULT:
        result = call(entry, a);
        if (!result && *(int *)a[at] == HOST_NODE) untranslate((u64 *)a[at] + NODE_FUNCTION);
        return result;
    case PATH: return call_with_path(entry, a, at, 0);
    case COREDUMP_PATH:
        if ((int)a[at - 1] != COREDUMP_FILE || !a[at + 1]) return call(entry, a);
        return call_with_path(entry, a, at, (u64 *)a[at + 1]);
    case PROC_ADDRESS: return get_function(entry, a, (void **)a[at]);
    case EXPORT_TABLE: return get_table(entry, a, (u64 **)a[at]);
    case IPC_HANDLE:
        return ((u64 (*)(u64, struct ipc_handle, u64))entry->real)(
            a[0], *(struct ipc_handle *)a[at], a[2]);
    case FLOATS: /* each the lower half of its register */
        return ((u64 (*)(u64, u64, float, float))entry->real)(
            a[0], a[1], *(const float *)&floats[at], *(const float *)&floats[(at + 1) & 3]);
    case LONG_RESULT: return get_long(entry, a, (unsigned *)a[at]);
    case VA_LIST: /* 48 and 176: no register is left, all are in memory */
        a[at] = (u64) & (struct va_list_tag){48, 176, (void *)a[at], 0};
        return call(entry, a);
    case REFUSED: return refuse(entry, "not for Windows programs on Linux");
    case HANDLE_BITS:
        handle = read_handle(rule, a[at]);
        return handle & rule->values ? refuse(entry, "Windows' handles") : call(entry, a);
    case HANDLE_TYPE:
        handle = read_handle(rule, a[at]);
        if (handle < 32 && rule->values >> handle & 1) return refuse(entry, "Windows' handles");
        return call(entry, a);
    case MISSING:
        if (first_time(entry))
            warn("it has no %s; answered with %llu", entry->name, bridge->errors.missing);
        return bridge->errors.missing;
    case WATCHED: return watch(entry, a);
    }
    return bridge->errors.missing;
}
